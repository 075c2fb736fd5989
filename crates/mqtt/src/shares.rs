//! How many sessions each principal has.

use millrace_wire::{Code, Result};
use std::collections::HashMap;

/// Sessions of all principals, and of each. One of them alone cannot take all places.
#[derive(Debug)]
pub struct Shares {
    most: usize,
    most_of_one: usize,
    all: usize,
    by: HashMap<Box<str>, usize>,
}

impl Shares {
    /// At most so many sessions, and at most so many of one principal.
    pub fn new(most: usize, most_of_one: usize) -> Self {
        Self { most, most_of_one, all: 0, by: HashMap::new() }
    }

    /// A session of this principal begins.
    ///
    /// # Errors
    /// [`Code::MqttLimit`], and nothing is counted.
    pub fn take(&mut self, principal: &str) -> Result<()> {
        if self.all >= self.most {
            return Err(Code::MqttLimit.error(format!("the host keeps {} sessions; this is the limit", self.most)));
        }
        let own = self.by.get(principal).copied().unwrap_or_default();
        if own >= self.most_of_one {
            return Err(Code::MqttLimit.error(format!("this caller has {own} sessions; this is the limit")));
        }
        self.all += 1;
        self.by.insert(principal.into(), own + 1);
        Ok(())
    }

    /// A session of this principal ends.
    pub fn give_back(&mut self, principal: &str) {
        if let Some(own) = self.by.get_mut(principal) {
            *own -= 1;
            self.all -= 1;
            if *own == 0 {
                self.by.remove(principal);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn no_principal_takes_the_places_of_others() {
        let mut shares = Shares::new(5, 3);
        let taken = |shares: &mut Shares, who: &str| shares.take(who).is_ok();
        assert!((0..3).all(|_| taken(&mut shares, "a")));
        assert_eq!(shares.take("a").unwrap_err().code(), Code::MqttLimit);
        assert!((0..2).all(|_| taken(&mut shares, "b")) && !taken(&mut shares, "c"), "all are taken");
        shares.give_back("nobody");
        shares.give_back("a");
        assert!(taken(&mut shares, "c") && !taken(&mut shares, "a"));
        ["a", "a", "b", "b", "c"].iter().for_each(|who| shares.give_back(who));
        assert!(shares.by.is_empty() && shares.all == 0);
    }
}
