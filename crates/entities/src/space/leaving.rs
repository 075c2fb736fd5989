//! Calls that wait no longer: at their timeouts, or because nobody takes their answers.

use super::{Call, Called, Flags, Moment, Space};
use crate::{
    Raised, Session, Waiter,
    state::Effect,
    types::{METHODS, Turn, Type},
};
use std::mem;

/// An empty array.
const NO_ARGUMENTS: &[u8] = &[0x90];

impl Space {
    /// Ends a waiting call at its timeout.
    pub(super) fn give_up(&mut self, call: &Call<'_>, moment: Moment) -> Called {
        if let Some(answered) = self.answered(call) {
            return answered;
        }
        let gone = || Err(Raised::new("millrace.NotFound", format!("{} '{}' is gone", call.kind.name(), call.key)));
        let Some(entity) = self.entities.get(call.key) else { return Called::Now(0, gone()) };
        let incarnation = entity.incarnation;
        let mine = |(_, waiter): &(&u64, &Waiter)| waiter.session == call.session && waiter.call == call.number;
        let Some((ticket, waiter)) = entity.state.waiters().iter().find(mine).map(|(at, waiter)| (*at, waiter.clone()))
        else {
            return Called::Now(incarnation, gone());
        };
        self.give_up_waiter((call.key, ticket), &waiter, false, moment);
        self.answered(call).unwrap_or(Called::Waiting(incarnation))
    }

    /// One that leaves gets no answer.
    fn give_up_waiter(&mut self, (key, ticket): (&str, u64), waiter: &Waiter, leaves: bool, moment: Moment) {
        let Some(entity) = self.entities.get_mut(key).filter(|entity| entity.state.waiters().contains_key(&ticket))
        else {
            return;
        };
        let others = self.bytes - entity.state.bytes();
        let mut turn = Turn::new(&mut entity.state, moment, waiter.session, waiter.call);
        turn.keeps = entity.persistent;
        let reply = match leaves {
            true => {
                turn.apply(Effect::Leave(ticket));
                None
            }
            false => entity.kind.give_up(&mut turn, ticket, waiter),
        };
        let (mut released, changes) = (mem::take(&mut turn.released), mem::take(&mut turn.done));
        self.bytes = others + entity.state.bytes();
        released.extend(reply.map(|reply| (waiter.session, waiter.call, reply.map(Into::into))));
        let is_shared = entity.kind == Type::Shared;
        // Its record is no longer than that of the step that added the waiter.
        let _ = self.record_step((key, false), &changes, None, &released);
        self.deliver(released, moment);
        if is_shared {
            self.work.push(key.into());
        }
    }

    /// Ends the waiting calls of a session as at their timeouts: nobody takes their answers.
    pub fn give_up_all(&mut self, session: &Session, moment: Moment) {
        let keys = self.sessions.get(session).map(|client| client.touched.clone()).unwrap_or_default();
        for key in keys {
            let Some(entity) = self.entities.get(&key) else { continue };
            let theirs = entity.state.waiters().iter().filter(|(_, waiter)| waiter.session == *session);
            let theirs: Vec<_> = theirs.map(|(ticket, waiter)| (*ticket, waiter.clone())).collect();
            // The timeout of a condition ends with its lock, which nobody would release.
            let leaves = entity.kind == Type::Condition;
            theirs.iter().for_each(|(ticket, waiter)| self.give_up_waiter((&key, *ticket), waiter, leaves, moment));
        }
    }

    /// The owner of a session has ended well, so its permits of semaphores stay acquired. Only those of an owner that is lost come back.
    pub fn leave_permits(&mut self, session: &Session, moment: Moment) {
        let keys = self.sessions.get(session).map(|client| client.touched.clone()).unwrap_or_default();
        for key in keys {
            let Some(entity) = self.entities.get_mut(&key) else { continue };
            let others = self.bytes - entity.state.bytes();
            let mut turn = Turn::new(&mut entity.state, moment, *session, 0);
            turn.keeps = entity.persistent;
            entity.kind.session_left(&mut turn, session);
            let changes = mem::take(&mut turn.done);
            self.bytes = others + entity.state.bytes();
            // Its record is no longer than that of the step that acquired them.
            let _ = self.record_step((&key, false), &changes, None, &[]);
        }
    }

    /// The calls that end waiting calls of a session in this way, for a space whose calls are ordered by a group. A condition's calls wait on.
    pub(crate) fn giving_up(&self, session: &Session) -> Vec<Call<'_>> {
        let Some(client) = self.sessions.get(session) else { return Vec::new() };
        let flags = Flags { give_up: true, must_exist: true, persistent: true, ..Flags::default() };
        let mut calls = Vec::new();
        for key in &client.touched {
            let Some(entity) = self.entities.get(key).filter(|entity| entity.kind != Type::Condition) else { continue };
            let kind = entity.kind;
            let methods = METHODS.iter().filter(|(of, _)| *of == kind).flat_map(|(_, methods)| *methods);
            for waiter in entity.state.waiters().values().filter(|waiter| waiter.session == *session) {
                let Some(asked) = client.calls.get(&waiter.call) else { continue };
                let call = |method| Call {
                    session: *session,
                    number: waiter.call,
                    acked: 0,
                    kind,
                    key,
                    incarnation: asked.incarnation,
                    method,
                    args: NO_ARGUMENTS,
                    new: None,
                    flags,
                    fence: None,
                };
                // The method is not kept; a repeated call is checked by this hash.
                calls.extend(methods.clone().map(|method| call(*method)).find(|call| call.what() == asked.what));
            }
        }
        calls
    }
}
