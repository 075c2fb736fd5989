//! Wakes the tasks of a loop from other threads: many of them with one system call.
//!
//! The runtime makes a system call for each task that another thread wakes. One flush releases the answers of many connections, and
//! one commit may concern many of them. So a thread that wakes such a task adds it to a list of its loop, and wakes the loop only if no
//! other thread has done so since the loop last read the list.

use futures_util::task::AtomicWaker;
use std::{
    cell::RefCell,
    future::{Future, poll_fn},
    mem,
    sync::{Arc, Mutex, PoisonError},
    task::{Context, Poll, Wake, Waker},
};

thread_local! {
    /// Of this thread's loop.
    static OWN: RefCell<Option<Arc<WakeList>>> = const { RefCell::new(None) };
}

/// The tasks of one loop that others have woken since it looked.
#[derive(Default)]
pub(super) struct WakeList {
    woken: Mutex<Vec<Waker>>,
    listener: AtomicWaker,
}

impl WakeList {
    /// This is the bell of the tasks that this thread serves from now on.
    pub fn attach(self: &Arc<Self>) {
        OWN.set(Some(self.clone()));
    }

    /// Wakes the tasks that others have woken, once there are any. The loop does this all the time.
    pub async fn wake_all(&self) {
        poll_fn(|context| {
            self.listener.register(context.waker());
            let woken = mem::take(&mut *self.woken.lock().unwrap_or_else(PoisonError::into_inner));
            if woken.is_empty() {
                return Poll::Pending;
            }
            woken.into_iter().for_each(Waker::wake);
            Poll::Ready(())
        })
        .await;
    }

    fn add(&self, task: &Waker) {
        let mut woken = self.woken.lock().unwrap_or_else(PoisonError::into_inner);
        let first = woken.is_empty();
        woken.push(task.clone());
        drop(woken);
        if first {
            self.listener.wake();
        }
    }
}

/// Wakes a task of the loop with this bell.
struct ListWaker {
    wake_list: Arc<WakeList>,
    task: Waker,
}

impl Wake for ListWaker {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        // On its own thread the task is woken directly; an ending thread no longer has a loop.
        let is_here = OWN.try_with(|own| own.borrow().as_ref().is_some_and(|own| Arc::ptr_eq(own, &self.wake_list)));
        match is_here {
            Ok(true) => self.task.wake_by_ref(),
            _ => self.wake_list.add(&self.task),
        }
    }
}

/// The same work, woken with other tasks of this thread's loop. It is boxed: an asynchronous function would have it twice, as argument
/// and as what it polls.
pub(super) fn woken_together(
    work: impl Future<Output = ()> + Send + 'static,
) -> impl Future<Output = ()> + Send + 'static {
    let (mut work, wake_list) = (Box::pin(work), OWN.with_borrow(Clone::clone));
    let mut own: Option<(Waker, Waker)> = None;
    poll_fn(move |context| {
        let Some(wake_list) = &wake_list else { return work.as_mut().poll(context) };
        let (_, list_waker) = match &mut own {
            Some(own) if own.0.will_wake(context.waker()) => own,
            own => {
                let task = context.waker().clone();
                let list_waker = Waker::from(Arc::new(ListWaker { wake_list: wake_list.clone(), task: task.clone() }));
                own.insert((task, list_waker))
            }
        };
        work.as_mut().poll(&mut Context::from_waker(list_waker))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::{
        pin::pin,
        sync::atomic::{AtomicUsize, Ordering},
    };

    #[derive(Default)]
    struct Counts(AtomicUsize);

    impl Wake for Counts {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    fn counted() -> (Arc<Counts>, Waker) {
        let counts = Arc::<Counts>::default();
        (counts.clone(), counts.into())
    }

    fn woken_count(counts: &Counts) -> usize {
        counts.0.load(Ordering::SeqCst)
    }

    #[test]
    fn many_tasks_are_woken_with_one_ring_and_none_is_lost() {
        let wake_list = Arc::<WakeList>::default();
        let ((wakes, listener), tasks) = (counted(), [(); 3].map(|()| counted()));
        let mut context = Context::from_waker(&listener);
        let early = Waker::from(Arc::new(ListWaker { wake_list: wake_list.clone(), task: tasks[0].1.clone() }));
        early.wake_by_ref(); // Before anybody listens.
        assert!(pin!(wake_list.wake_all()).poll(&mut context).is_ready());
        assert!(pin!(wake_list.wake_all()).poll(&mut context).is_pending());
        assert_eq!((woken_count(&tasks[0].0), woken_count(&wakes)), (1, 0));
        for (_, task) in &tasks {
            Waker::from(Arc::new(ListWaker { wake_list: wake_list.clone(), task: task.clone() })).wake();
        }
        assert_eq!(woken_count(&wakes), 1, "one ring for three");
        assert!(pin!(wake_list.wake_all()).poll(&mut context).is_ready());
        assert!(pin!(wake_list.wake_all()).poll(&mut context).is_pending());
        assert_eq!(tasks.each_ref().map(|(counts, _)| woken_count(counts)), [2, 1, 1]);
        early.wake();
        assert_eq!(woken_count(&wakes), 2, "it is rung again");
        // On the loop's own thread nobody rings.
        wake_list.attach();
        Waker::from(Arc::new(ListWaker { wake_list: wake_list.clone(), task: tasks[1].1.clone() })).wake();
        assert_eq!((woken_count(&tasks[1].0), woken_count(&wakes)), (2, 2));
    }
}
