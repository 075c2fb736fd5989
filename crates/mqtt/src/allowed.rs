//! The topics that a user may use.

use crate::filter::{check_filter, matches};
use millrace_wire::{Code, Defence, Result};
use serde::{Deserialize, Serialize};

/// Filters of one kind of one user.
const FILTERS_MAX: usize = 100;

/// What a user may publish, and what it may receive.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Allowed {
    /// Filters of the topics to which it may publish.
    pub publish: Vec<String>,
    /// Filters of the topics whose messages it may receive.
    pub subscribe: Vec<String>,
}

impl Allowed {
    /// Checks the filters.
    ///
    /// # Errors
    /// [`Code::MqttTopicInvalid`], also if there are none, or too many.
    pub fn check(&self) -> Result<()> {
        for filters in [&self.publish, &self.subscribe] {
            if filters.len() > FILTERS_MAX {
                let detail = format!("{} filters; the limit is {FILTERS_MAX}", filters.len());
                return Err(Code::MqttTopicInvalid.error(detail));
            }
            filters.iter().try_for_each(|filter| check_filter(filter))?;
        }
        if self.publish.is_empty() && self.subscribe.is_empty() {
            return Err(Code::MqttTopicInvalid.error("no filter: name the topics that the user may publish or receive"));
        }
        Ok(())
    }

    /// Whether the user may publish to this topic.
    pub fn may_publish(&self, topic: &str) -> bool {
        !Defence::MqttTopics.stands() || self.publish.iter().any(|filter| matches(filter, topic))
    }

    /// Whether the user may receive messages of this topic.
    pub fn may_receive(&self, topic: &str) -> bool {
        !Defence::MqttTopics.stands() || self.subscribe.iter().any(|filter| matches(filter, topic))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_user_has_its_own_topics_only() {
        let list = |filters: &[&str]| filters.iter().map(|filter| (*filter).to_owned()).collect::<Vec<_>>();
        let lamp = Allowed { publish: list(&["tele/lamp/#"]), subscribe: list(&["cmnd/lamp/+", "time"]) };
        lamp.check().unwrap();
        assert!(lamp.may_publish("tele/lamp/state") && lamp.may_publish("tele/lamp"));
        assert!(!lamp.may_publish("tele/door/state") && !lamp.may_publish("time") && !lamp.may_publish("tele/lampe"));
        assert!(lamp.may_receive("cmnd/lamp/on") && lamp.may_receive("time"));
        assert!(!lamp.may_receive("cmnd/lamp/a/b") && !lamp.may_receive("tele/lamp/state"));
        let nothing = Allowed::default();
        assert!(!nothing.may_publish("a") && !nothing.may_receive("a") && nothing.check().is_err());
        for filters in [list(&["a#"]), list(&[""]), vec!["a".to_owned(); 101]] {
            assert!(Allowed { publish: filters, ..Allowed::default() }.check().is_err());
        }
    }
}
