//! Shared objects through a door: sessions and objects are made by whoever may.

use millrace_node::{
    Access, Caller, Code, CreateOptions, Namespace, Objects, Served,
    secrets::Authority,
    token::{Grant, Peer, Proof, Right, Rules, TokenId, Way, admit},
};
use millrace_wire::{
    protocol::{Call, Invoke, Session},
    token::Kind,
};
use std::sync::Arc;

const PEER: Peer = Peer { way: Way::Unix, address: None, key: None };

struct Fixture {
    _dir: tempfile::TempDir,
    namespace: Namespace,
    served: Served,
}

fn fixture() -> Fixture {
    let dir = tempfile::tempdir().unwrap();
    let namespace = Namespace::create(&dir.path().join("ns"), &CreateOptions::default()).unwrap();
    let objects = Objects::start(namespace.clone()).unwrap();
    let served = Served::with_objects("n".parse().unwrap(), namespace.clone(), Some(objects)).unwrap();
    Fixture { _dir: dir, namespace, served }
}

impl Fixture {
    fn holder(&self, grants: Vec<Grant>, subject: Option<&str>) -> Access {
        let rules = Rules {
            grants,
            ids: vec![TokenId([1; 8])],
            subject: subject.map(|subject| subject.as_bytes().into()),
            ..Rules::default()
        };
        let token = Authority::ensure(self.namespace.dir()).unwrap().issue(&rules).unwrap();
        let keys = self.served.keys().current().unwrap();
        let caller = admit(&*keys, token.body(), Proof::Bearer(token.signature()), PEER).unwrap();
        self.served.access(&Arc::new(caller))
    }

    fn owner(&self) -> Access {
        self.served.access(&Arc::new(Caller::owner(PEER)))
    }
}

fn on(kind: Kind, name: &str, rights: &[Right]) -> Grant {
    Grant { kind, name: name.as_bytes().into(), subtree: true, rights: rights.iter().copied().collect() }
}

fn open(access: &Access, number: u16, lease_ms: u32) -> Result<u32, Code> {
    let mut id = [0; 16];
    id[..2].copy_from_slice(&number.to_le_bytes());
    let session = Session { session: &id, application: "", lease_ms, resume: false };
    access.open_session(&session).wait().map(|(_, lease_ms)| lease_ms).map_err(|error| error.code())
}

fn clear(access: &Access, number: u64, kind: &str) -> Result<(), Code> {
    let call = Call {
        session: &[0; 16],
        call: number,
        acked: 0,
        kind,
        key: "hits",
        incarnation: 0,
        method: "clear",
        arguments: &[0x90],
        new: &[],
        must_exist: false,
        must_create: false,
        persistent: false,
        rf: 0,
        give_up: false,
        wait_ms: 0,
    };
    access.call(&call).map(drop).map_err(|error| error.code())
}

#[test]
fn a_session_is_opened_by_whoever_may_use_an_object_and_subjects_have_no_more_of_them() {
    let f = fixture();
    let elsewhere = f.holder(vec![on(Kind::Log, "", &[Right::Read, Right::Append])], None);
    assert_eq!(open(&elsewhere, 1, 1000), Err(Code::CapabilityDenied));
    let objects = || vec![on(Kind::Object, "", &[Right::Read])];
    let (one, two) = (f.holder(objects(), Some("one")), f.holder(objects(), Some("two")));
    assert_eq!(open(&one, 0, 3_600_000), Ok(60_000), "its lease is short");
    (1..512).for_each(|number| assert_eq!(open(&one, number, 60_000), Ok(60_000)));
    (0..512).for_each(|number| assert_eq!(open(&two, number, 60_000), Ok(60_000)));
    assert_eq!(open(&two, 512, 60_000), Err(Code::ObjectsBusy), "one capability has so many");
    assert_eq!(open(&f.owner(), 1, 3_600_000), Ok(3_600_000));
}

#[test]
fn an_object_is_made_with_the_right_to_and_its_type_is_not_told_to_whoever_has_none_on_it() {
    let f = fixture();
    let calls = f.holder(vec![on(Kind::Object, "", &[Right::Call, Right::Read])], None);
    open(&calls, 0, 60_000).unwrap();
    assert_eq!(clear(&calls, 1, "Set"), Err(Code::CapabilityDenied));
    let owner = f.owner();
    open(&owner, 0, 60_000).unwrap();
    clear(&owner, 1, "Set").unwrap();
    assert_eq!(clear(&calls, 2, "Set"), Ok(()));
    assert_eq!(clear(&calls, 3, "Counter"), Err(Code::CapabilityDenied));
    assert_eq!(clear(&owner, 2, "Counter"), Err(Code::ObjectTypeMismatch));
}

#[test]
fn tasks_are_submitted_by_whoever_may_call_and_make_all_objects() {
    let f = fixture();
    let run = || on(Kind::Function, "", &[Right::Run]);
    let submit = |grants| {
        let invoke = Invoke { pool: "p", bodies: false, tasks: Vec::new(), key: "k" };
        f.holder(grants, None).invoke(&invoke).wait().map_err(|error| error.code())
    };
    assert_eq!(submit(vec![run()]), Err(Code::CapabilityDenied));
    let some = on(Kind::Object, "Set", &[Right::Call, Right::Create, Right::Read]);
    assert_eq!(submit(vec![run(), some]), Err(Code::CapabilityDenied));
    let all = on(Kind::Object, "", &[Right::Call, Right::Create, Right::Read]);
    assert_eq!(submit(vec![run(), all]), Err(Code::TaskInvalid), "there is none");
}

#[test]
fn methods_of_user_classes_are_called_by_whoever_may_submit_tasks_to_their_pool() {
    let f = fixture();
    let array = |values: &[&[u8]]| [&[0x90 | values.len() as u8][..], &values.concat()].concat();
    let (class, pool, one): (&[u8], &[u8], &[u8]) = (b"\xa4Gate", b"\xa1p", &[1]);
    let arguments = array(&[class, pool, one, one, class, b"\xa5enter", &[100], &[0xc4, 0]]);
    let call = |access: Access, method: &str| {
        let session = [0; 16];
        open(&access, 0, 1000).unwrap();
        let call = Call {
            session: &session,
            call: 1,
            kind: "Shared",
            key: "gate",
            method,
            arguments: &arguments,
            ..Call::default()
        };
        access.call(&call).map(drop).map_err(|error| error.code())
    };
    let all = || on(Kind::Object, "", &[Right::Call, Right::Create, Right::Read, Right::Delete]);
    let run = |pool: &str| on(Kind::Function, pool, &[Right::Run]);
    for method in ["call", "read", "version", "delete"] {
        assert_eq!(call(f.holder(vec![all()], None), method), Err(Code::CapabilityDenied), "{method}");
        assert_eq!(call(f.holder(vec![all(), run("pool-q")], None), method), Err(Code::CapabilityDenied), "{method}");
        let some = on(Kind::Object, "Shared", &[Right::Call, Right::Create, Right::Read, Right::Delete]);
        assert_eq!(call(f.holder(vec![some, run("pool-p")], None), method), Err(Code::CapabilityDenied), "{method}");
        let allowed = call(f.holder(vec![all(), run("pool-p")], None), method);
        assert_eq!(allowed, Err(Code::ObjectCallInvalid), "{method}: there are no workers here");
    }
}

#[test]
fn objects_are_deleted_by_whoever_may_delete_them() {
    let f = fixture();
    let delete = |rights: &[Right]| {
        let access = f.holder(vec![on(Kind::Object, "", rights)], None);
        open(&access, 0, 1000).unwrap();
        let session = [0; 16];
        let (kind, key, method) = ("Set", "words", "delete");
        let call = Call { session: &session, call: 1, kind, key, method, arguments: &[0x90], ..Call::default() };
        access.call(&call).map(drop).map_err(|error| error.code())
    };
    assert_eq!(delete(&[Right::Call, Right::Create, Right::Read]), Err(Code::CapabilityDenied));
    assert_eq!(delete(&[Right::Delete, Right::Read]), Ok(()));
}
