//! The access of a caller to shared objects and tasks.

use super::Access;
use crate::{
    AppendOptions, Free, Gated,
    cluster::Copies,
    objects::{Answered, Objects, none_here},
};
use millrace_entities::{Call, DELETE, Flags, Method, SESSION_BYTES, Session, Shown, Type};
use millrace_journal::Position;
use millrace_namespace::tasks;
use millrace_security::token::Kind;
use millrace_security::token::{Action, Principal, Resource, Right};
use millrace_wire::{Code, Name, Result, protocol};
use sha2::{Digest, Sha256};

/// Separates the parts of a name that belongs to a principal.
const SEPARATOR: char = '/';
/// The part of a session's id that says of which capability it is, if it is not the owner's.
const PREFIX_BYTES: usize = 8;
/// The maximum number of sessions of one capability, for all its subjects together.
const SESSIONS_MAX: usize = 1024;
/// The longest lease of a holder: what it leaves behind is not there for long.
const HOLDER_LEASE_MAX_MS: u32 = 60_000;

/// An object, and how copies of it are kept, if several hosts have one.
pub type ShownObject = (Shown, Option<Copies>);

/// The rights by which a waiting call is permitted.
pub struct CallRight {
    right: Right,
    object: String,
}

/// The right that a call of a method takes.
fn right_to(method: Method) -> Right {
    match method {
        DELETE => Right::Delete,
        method if method.reads => Right::Read,
        _ => Right::Call,
    }
}

/// An object's name in capabilities.
fn name_of(kind: Type, key: &str) -> String {
    format!("{}{SEPARATOR}{key}", kind.name())
}

impl Access {
    /// The objects of the namespace's host.
    pub fn objects(&self) -> Result<&Objects> {
        self.served.inner.objects.as_ref().ok_or_else(none_here)
    }

    /// Opens a session, or takes it up again; whether it was open, and its lease.
    pub fn open_session(&self, asked: &protocol::Session<'_>) -> Gated<(bool, u32)> {
        let open = || {
            let session = self.own_session(asked.session)?;
            let is_holder = self.caller.chain().is_some();
            if is_holder && !self.uses_objects() {
                self.check(Right::Call, Resource::object(""))?;
            }
            if is_holder && self.objects()?.like(&session, PREFIX_BYTES) >= SESSIONS_MAX {
                return Err(Code::ObjectsBusy.error(format!("{SESSIONS_MAX} sessions of one capability are open")));
            }
            // No caller reaches the application of another principal.
            let application = match self.own_prefix() {
                Some(own) if !asked.application.is_empty() => format!("{own}{SEPARATOR}{}", asked.application),
                _ => asked.application.to_owned(),
            };
            let lease_ms = if is_holder { asked.lease_ms.min(HOLDER_LEASE_MAX_MS) } else { asked.lease_ms };
            self.objects()?.open(session, &application, lease_ms, asked.resume)
        };
        self.free(open(), Free::Session)
    }

    /// Whether a holder has a right by which it calls some object.
    fn uses_objects(&self) -> bool {
        let Some(chain) = self.caller.chain() else { return true };
        let links = chain.parts.iter().flat_map(|part| &*part.blocks).chain(&*chain.after);
        let grants = links.flat_map(|link| &link.rules.grants);
        let names =
            grants.filter(|grant| grant.kind == Kind::Object).filter_map(|grant| str::from_utf8(&grant.name).ok());
        // A grant on the namespace, or on all objects, names none.
        let may = |name: &str| [Right::Read, Right::Call].iter().any(|right| self.may(*right, Resource::object(name)));
        may("") || names.into_iter().any(may)
    }

    /// The rights that the caller needs for a waiting call; `None` for the owner.
    pub fn call_right(&self, asked: &protocol::Call<'_>) -> Result<Option<CallRight>> {
        if self.caller.chain().is_none() {
            return Ok(None);
        }
        let kind: Type = asked.kind.parse()?;
        Ok(Some(CallRight { right: right_to(kind.method(asked.method)?), object: name_of(kind, asked.key) }))
    }

    /// An error if the capability has ended, or was revoked, since the call was asked for.
    pub fn still_may(&self, call: &CallRight) -> Result<()> {
        let on = Resource::object(&call.object);
        // A rate counts the call once.
        if self.may(call.right, on) { Ok(()) } else { self.check(call.right, on) }
    }

    /// Calls a method of an object.
    pub fn call(&self, asked: &protocol::Call<'_>) -> Result<Answered> {
        let objects = self.objects()?;
        let kind: Type = asked.kind.parse()?;
        let method = kind.method(asked.method)?;
        let name = name_of(kind, asked.key);
        self.check(right_to(method), Resource::object(&name))?;
        self.check_fence(asked.fence)?;
        let must_exist = asked.must_exist || (kind == Type::Shared && self.check_class(asked)?);
        // The object may go or come meanwhile: what the call itself does is what counts.
        let may_create = must_exist || self.may(Right::Create, Resource::object(&name));
        if asked.call == 0 {
            return Err(Code::ObjectCallInvalid.error("the first call of a session has number 1"));
        }
        let called = objects.call(&Call {
            session: self.own_session(asked.session)?,
            number: asked.call,
            acked: asked.acked,
            kind,
            key: asked.key,
            incarnation: asked.incarnation,
            method,
            args: asked.arguments,
            new: (!asked.new.is_empty()).then_some(asked.new),
            flags: Flags {
                must_exist: must_exist || !may_create,
                must_create: asked.must_create,
                give_up: asked.give_up,
                persistent: asked.persistent,
                copies: asked.rf,
            },
            fence: asked.fence,
        });
        called.map_err(|error| match error.code() {
            // Callers with a right on it may know its type.
            Code::ObjectTypeMismatch if self.caller.chain().is_some() && may_create => {
                Code::ObjectNotFound.error(format!("{} '{}'", kind.name(), asked.key))
            }
            Code::ObjectTypeMismatch | Code::ObjectNotFound if !may_create => {
                self.check(Right::Create, Resource::object(&name)).err().unwrap_or(error)
            }
            _ => error,
        })
    }

    /// An answer of an object waits until everything that it depends on is safe.
    pub fn reported<T>(&self, answer: T, upto: Position) -> Gated<T> {
        match self.objects() {
            Ok(objects) => objects.hold(answer, upto, None),
            Err(error) => self.refuse(error, None),
        }
    }

    /// Objects that the caller may see, by key, from behind this one on: those of this host, and those that the cluster keeps. At most so
    /// many, and more only if they have the key of the last one; and how many sessions are open here.
    pub fn show_objects(&self, above: &str, most: usize) -> Result<(Vec<ShownObject>, usize)> {
        self.check(Right::Observe, Resource::NAMESPACE)?;
        let (own, sessions) = self.objects()?.show(above, most);
        let (others, copies) =
            self.served.cluster().map(|cluster| cluster.show_objects(above, most)).unwrap_or_default();
        let own = own.into_iter().map(|shown| (shown, None));
        let mut all: Vec<_> = own.chain(others.into_iter().map(|shown| (shown, copies.clone()))).collect();
        all.sort_by(|one, other| one.0.key.cmp(&other.0.key));
        let end = (most..all.len()).find(|at| all[*at].0.key != all[*at - 1].0.key);
        all.truncate(end.unwrap_or(all.len()));
        Ok((all, sessions))
    }

    /// One object, if it exists; one of this host before one that the cluster keeps.
    pub fn show_object(&self, key: &str) -> Result<Option<ShownObject>> {
        self.check(Right::Observe, Resource::NAMESPACE)?;
        let own = self.objects()?.show_one(key).map(|shown| (shown, None));
        let other = || self.served.cluster()?.show_object(key).map(|(shown, copies)| (shown, Some(copies)));
        Ok(own.or_else(other))
    }

    /// A principal's session; no caller reaches that of another principal.
    fn own_session(&self, id: &[u8]) -> Result<Session> {
        let own = <[u8; SESSION_BYTES]>::try_from(id);
        let own =
            own.map_err(|_| Code::ObjectCallInvalid.error(format!("a session's id has {SESSION_BYTES} bytes")))?;
        match self.caller.principal() {
            Principal::Owner => Ok(own),
            principal @ Principal::Holder { id, .. } => {
                let which = Sha256::new().chain_update(principal.to_string()).chain_update(own).finalize();
                let whose = Sha256::digest(id.0);
                Ok(std::array::from_fn(|at| if at < PREFIX_BYTES { whose[at] } else { which[at] }))
            }
        }
    }

    /// Checks that the caller may have workers open what the call of a user class brings. The method itself is the class's, so the right to
    /// the object is enough for a call that brings plain values alone; whether it is such a call, which creates no object.
    fn check_class(&self, asked: &protocol::Call<'_>) -> Result<bool> {
        if self.caller.chain().is_none() {
            return Ok(false);
        }
        let (is_module, is_plain) = self.objects()?.opens_nothing(asked.key, asked.arguments);
        let ships = millrace_entities::shipped_class(asked.method, asked.arguments).is_some();
        // An object with copies is another one than that of this host.
        if (is_module && !ships) || (is_plain && asked.rf <= 1) {
            return Ok(!is_module);
        }
        self.check_pool(millrace_entities::pool_of(asked.arguments).unwrap_or_default(), 0).map(|()| false)
    }

    /// Checks that the caller may have workers of this pool open and run what it sends: tasks of at most this many bytes, which are
    /// records, or a call of a user class.
    fn check_pool(&self, pool: &str, bytes: usize) -> Result<()> {
        let function = tasks::function(pool)?;
        self.check_action(&Action { bytes, ..Action::new(Right::Run, Resource::function(&function)) })?;
        // Workers can call every object, so submitting a task needs these rights, or a caller could reach objects through a task that it
        // may not call itself. For rates this counts once, as the right to run.
        let all = Resource::object("");
        let mut missing = [Right::Read, Right::Call, Right::Create].into_iter().filter(|right| !self.may(*right, all));
        missing.try_for_each(|right| self.check(right, all))
    }

    /// Has tasks run by a pool; the number of the first.
    pub fn invoke(&self, invoke: &protocol::Invoke<'_>) -> Gated<u64> {
        let invoked = || {
            let pool: Name = invoke.pool.parse()?;
            self.check_pool(&pool, invoke.tasks.iter().map(|task| task.len()).max().unwrap_or(0))?;
            let key = self.own_key(Some(invoke.key))?;
            let tasks: Vec<&[u8]> = invoke.tasks.iter().map(|task| &***task).collect();
            let options = AppendOptions { key: key.as_deref(), ..AppendOptions::default() };
            let held = self.namespace().invoke_gated(&pool, invoke.bodies, &tasks, options)?;
            Ok(held.map(|receipts| receipts[0].seqno))
        };
        self.out(invoked(), None)
    }

    /// Ends a task that no attempt has begun of; whether that was so.
    pub fn revoke(&self, revoke: &protocol::Revoke<'_>) -> Gated<bool> {
        let revoked = || {
            let pool: Name = revoke.pool.parse()?;
            self.check(Right::Run, Resource::function(&tasks::function(&pool)?))?;
            let (cancelled, end) = millrace_dispatch::cancel_task(self.namespace(), &pool, revoke.task)?;
            Ok(self.served.gate().hold(crate::Site::GiveUpFunction, cancelled, crate::Shows::Report(end), None))
        };
        self.out(revoked(), None)
    }
}
