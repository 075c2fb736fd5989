//! Reads are linearizable: a read shows every record that was acknowledged, or shown by another read, before it began.

/// What a read that begins now has to show at least.
#[derive(Default)]
pub struct Reads {
    newest: u64,
    answered: usize,
}

impl Reads {
    /// A publisher got the index of its record.
    pub fn acknowledged(&mut self, index: u64) {
        self.newest = self.newest.max(index);
    }

    /// A read begins: the newest record that it has to show at least.
    pub fn begins(&self) -> u64 {
        self.newest
    }

    /// How many were answered.
    pub fn answered(&self) -> usize {
        self.answered
    }

    /// A host answers a read with its newest record.
    pub fn shows(&mut self, host: u64, least: u64, newest: u64) -> Result<(), String> {
        if newest < least {
            return Err(format!(
                "host {host} answers a read with record {newest}, and record {least} was known before it began"
            ));
        }
        self.answered += 1;
        self.acknowledged(newest);
        Ok(())
    }
}
