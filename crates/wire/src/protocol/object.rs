//! Messages between clients and hosts about shared objects and tasks.

use super::{Fence, Message};
use serde::{Deserialize, Serialize};

macro_rules! messages {
    ($($(#[$doc:meta])* $number:literal $type:ident $(<$life:lifetime>)? {
        $($(#[$field:meta])* $name:ident: $of:ty,)*
    })*) => { $(
        $(#[$doc])*
        #[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
        pub struct $type $(<$life>)? { $($(#[$field])* pub $name: $of,)* }

        impl Message for messages!(@of $type $($life)?) {
            const TYPE: u8 = $number;
        }
    )* };
    (@of $type:ident $life:lifetime) => { $type<'_> };
    (@of $type:ident) => { $type };
}

messages! {
    /// Opens a session, or renews its lease.
    64 Session<'b> {
        /// Its id, 16 bytes that the client has chosen at random.
        #[serde(borrow, with = "serde_bytes")]
        session: &'b [u8],
        /// The application: its objects end with the last of its sessions. Empty for objects that stay.
        #[serde(default, skip_serializing_if = "str::is_empty")]
        application: &'b str,
        /// For how long it stays open when nothing is heard of it; 0 ends it now.
        lease_ms: u32,
        /// It is not opened if it is not open: what it held is lost.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        resume: bool,
    }

    /// The answer to [`Session`].
    65 Opened {
        /// Whether it was open before.
        resumed: bool,
        /// The lease that it has.
        lease_ms: u32,
    }

    /// Calls a method of a shared object.
    66 Call<'b> {
        /// The session.
        #[serde(borrow, with = "serde_bytes")]
        session: &'b [u8],
        /// The call's number in it, from 1; one that was used before is that call again.
        call: u64,
        /// Answers to calls below this number have arrived.
        acked: u64,
        /// The object's type.
        kind: &'b str,
        /// Its key.
        key: &'b str,
        /// The method.
        method: &'b str,
        /// Its arguments: an array in MessagePack.
        #[serde(borrow, with = "serde_bytes")]
        arguments: &'b [u8],
        /// The arguments of its constructor, should it not be there: an array in MessagePack.
        #[serde(borrow, default, with = "serde_bytes", skip_serializing_if = "<[u8]>::is_empty")]
        new: &'b [u8],
        /// Which object of that key it has to be; 0 for any.
        #[serde(default, skip_serializing_if = "is_zero")]
        incarnation: u64,
        /// It is not made if it is not there.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        must_exist: bool,
        /// It is refused if it exists.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        must_create: bool,
        /// It is one that is there after a restart of its host, and made so.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        persistent: bool,
        /// How many hosts of the cluster have a copy of it at least; 0 or 1 for this host alone.
        #[serde(default, skip_serializing_if = "is_zero_u8")]
        rf: u8,
        /// The caller no longer waits: the answer is that of a call after its timeout.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        give_up: bool,
        /// How long the answer may take; then the host answers that the call waits, and the call continues to wait.
        #[serde(default, skip_serializing_if = "is_zero_u32")]
        wait_ms: u32,
        /// A token of a lock: the call is refused if the object has seen a higher one.
        #[serde(borrow, default, skip_serializing_if = "Option::is_none")]
        fence: Option<Fence<'b>>,
    }

    /// The return value of a call.
    67 Returned<'b> {
        /// Which object of the key it was.
        incarnation: u64,
        /// The call waits: it is asked for again under its number.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        waiting: bool,
        /// The value in MessagePack.
        #[serde(borrow, with = "serde_bytes")]
        value: &'b [u8],
    }

    /// The exception of a call.
    68 Raised<'b> {
        /// Which object of the key it was.
        incarnation: u64,
        /// The exception's class.
        class: &'b str,
        /// Its content.
        text: &'b str,
    }

    /// Has tasks run by a pool, all or none.
    70 Invoke<'b> {
        /// The pool.
        pool: &'b str,
        /// Whether these are bodies that tasks name, and not tasks.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        bodies: bool,
        /// The tasks, at most 1024.
        #[serde(borrow)]
        tasks: Vec<&'b serde_bytes::Bytes>,
        /// The idempotency key of the whole.
        key: &'b str,
    }

    /// The answer to [`Invoke`].
    71 Invoked {
        /// The number of the first; the others follow it.
        first: u64,
    }

    /// Cancels a task that has not begun.
    72 Revoke<'b> {
        /// The pool.
        pool: &'b str,
        /// The task.
        task: u64,
    }

    /// The answer to [`Revoke`].
    73 Revoked {
        /// Whether it had not begun, and never will.
        cancelled: bool,
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_zero_u8(number: &u8) -> bool {
    *number == 0
}

fn is_zero_u32(number: &u32) -> bool {
    *number == 0
}
