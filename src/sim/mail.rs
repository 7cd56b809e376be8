//! Whose tokens the engine delivers: a mailbox for each live sequence, and what
//! its stream has lent to be said at once. It stands behind the same lock as
//! the engine.
//!
//! Plain events are said in turns of a few streams, first put together, then
//! sent: what the kernel does for one `send` drives everything else out of the
//! near caches, so each half runs in a cache of its own.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use crate::sim::engine::{Delivery, Key};
use crate::sim::mailbox::Mailbox;
use crate::sim::model::Model;
use crate::sim::plain::Plain;

/// Streams in a turn; nobody waits longer for the lock than they take.
const TURN: usize = 16;

/// Where a sequence's tokens go.
#[derive(Debug)]
struct Recipient {
    plain: Option<Plain>,
    mailbox: Arc<Mailbox>,
    /// Which of the mailbox's choices.
    choice: usize,
}

/// All live sequences' recipients.
#[derive(Debug, Default)]
pub(super) struct Mail {
    /// By rank and slot.
    ranks: Vec<Vec<Option<Recipient>>>,
    /// Whose plain events are due.
    due: VecDeque<Key>,
    /// Mailboxes with news that nobody was told of yet.
    pub(super) news: Vec<Arc<Mailbox>>,
    turn: Turn,
}

/// A turn's events; its memory is used again.
#[derive(Debug, Default)]
struct Turn {
    framed: Vec<u8>,
    parts: Vec<(Key, usize, Range<usize>)>,
}

impl Mail {
    pub(super) fn new(ranks: usize) -> Self {
        Self {
            ranks: (0..ranks).map(|_| Vec::new()).collect(),
            ..Self::default()
        }
    }

    /// A sequence's tokens go to this mailbox from now on.
    pub(super) fn open(&mut self, key: Key, mailbox: Arc<Mailbox>, choice: usize) {
        let rank = &mut self.ranks[key.rank];
        if rank.len() <= key.slot {
            rank.resize_with(key.slot + 1, || None);
        }
        rank[key.slot] = Some(Recipient {
            plain: None,
            mailbox,
            choice,
        });
    }

    /// Nobody wants them any more.
    pub(super) fn close(&mut self, key: Key) {
        self.ranks[key.rank][key.slot] = None;
    }

    fn recipient(&mut self, key: Key) -> Option<&mut Recipient> {
        self.ranks[key.rank].get_mut(key.slot)?.as_mut()
    }

    /// The same, if the slot is still this mailbox's.
    fn recipient_of(&mut self, key: Key, mailbox: &Arc<Mailbox>) -> Option<&mut Recipient> {
        let recipient = self.recipient(key);
        recipient.filter(|recipient| Arc::ptr_eq(&recipient.mailbox, mailbox))
    }

    fn plain(&mut self, key: Key) -> Option<&mut Plain> {
        let plain = self.recipient(key)?.plain.as_mut();
        plain.filter(|plain| !plain.stuck)
    }

    /// Leaves word of what was delivered.
    pub(super) fn deliver(&mut self, deliveries: &[Delivery]) {
        for delivery in deliveries {
            let key = delivery.key;
            if delivery.finish.is_none()
                && let Some(plain) = self.plain(key)
            {
                plain.released = delivery.released;
                plain.cached = delivery.cached;
                self.due.push_back(key);
                continue;
            }
            let Some(recipient) = self.recipient(key) else {
                continue;
            };
            let mailbox = Arc::clone(&recipient.mailbox);
            mailbox.deliver(recipient.choice, delivery);
            if delivery.finish.is_some() {
                mailbox.leave(recipient.plain.take());
                self.close(key);
            }
            self.news.push(mailbox);
        }
    }

    /// Says the plain events of some streams; true while there are more.
    pub(super) fn say(&mut self, model: &Model) -> bool {
        let mut turn = std::mem::take(&mut self.turn);
        turn.framed.clear();
        for _ in 0..TURN {
            let Some(key) = self.due.pop_front() else {
                break;
            };
            let Some(plain) = self.plain(key) else {
                continue;
            };
            let from = turn.framed.len();
            let events = plain.write(model, &mut turn.framed);
            if events > 0 {
                turn.parts.push((key, events, from..turn.framed.len()));
            }
        }
        for (key, events, part) in turn.parts.drain(..) {
            let Some(recipient) = self.recipient(key) else {
                continue;
            };
            let Some(plain) = &mut recipient.plain else {
                continue;
            };
            if !plain.send(events, &turn.framed[part]) {
                let mailbox = Arc::clone(&recipient.mailbox);
                mailbox.catch_up(recipient.choice, plain);
                self.news.push(mailbox);
            }
        }
        self.turn = turn;
        !self.due.is_empty()
    }

    /// A stream lends its plain part; it is given back at once where its
    /// sequence has ended.
    pub(super) fn lend(
        &mut self,
        key: Key,
        mailbox: &Arc<Mailbox>,
        mut plain: Plain,
    ) -> Option<Plain> {
        match self.recipient_of(key, mailbox) {
            None => Some(plain),
            Some(recipient) => {
                let reading = mailbox.read(recipient.choice);
                plain.released = reading.released;
                plain.cached = reading.cached;
                recipient.plain = Some(plain);
                None
            }
        }
    }

    /// And has it again; its mailbox then knows of all its tokens.
    pub(super) fn take_back(&mut self, key: Key, mailbox: &Arc<Mailbox>) -> Option<Plain> {
        match self.recipient_of(key, mailbox) {
            None => mailbox.take_left(),
            Some(recipient) => {
                let plain = recipient.plain.take()?;
                mailbox.catch_up(recipient.choice, &plain);
                Some(plain)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::sim::engine::Finish;
    use crate::sim::line::Line;
    use crate::sim::toy::Toy;

    const KEY: Key = Key { rank: 0, slot: 3 };

    /// A part on a line that takes nothing.
    fn plain() -> Plain {
        let line = (Arc::new(Line::default()), -1);
        let picks = vec![0; 8].into();
        let mut plain = Plain::new(("data: ".into(), "\n\n"), picks, 1, line, false);
        plain.log_into(Vec::new());
        plain
    }

    fn delivery(released: usize, finish: Option<Finish>) -> Delivery {
        Delivery {
            key: KEY,
            released,
            cached: 64,
            finish,
        }
    }

    fn opened(choices: usize) -> (Mail, Arc<Mailbox>) {
        let mut mail = Mail::new(1);
        let mailbox = Arc::new(Mailbox::new(choices));
        mail.open(KEY, Arc::clone(&mailbox), choices - 1);
        (mail, mailbox)
    }

    #[test]
    fn what_is_lent_hears_of_tokens_and_its_mailbox_does_afterwards() {
        let (mut mail, mailbox) = opened(1);
        mail.deliver(&[delivery(1, None)]);
        assert_eq!(mail.news.len(), 1);
        assert!(mail.lend(KEY, &mailbox, plain()).is_none());
        mail.deliver(&[delivery(2, None), delivery(3, None)]);
        assert_eq!((mail.news.len(), mailbox.read(0).released), (1, 1));
        let back = mail.take_back(KEY, &mailbox).unwrap();
        assert_eq!((back.sent, back.released), (1, 3));
        let reading = mailbox.read(0);
        assert_eq!((reading.released, reading.cached), (3, 64));
        assert!(mail.take_back(KEY, &mailbox).is_none());
    }

    #[test]
    fn the_end_goes_to_the_mailbox_together_with_what_was_lent() {
        let (mut mail, mailbox) = opened(2);
        assert!(mail.lend(KEY, &mailbox, plain()).is_none());
        mail.deliver(&[delivery(2, None), delivery(3, Some(Finish::Length))]);
        assert_eq!(mail.news.len(), 1);
        let reading = mailbox.read(1);
        assert_eq!(
            (reading.released, reading.finish),
            (3, Some(Finish::Length))
        );
        // Its slot has a new sequence by now.
        let other = Arc::new(Mailbox::new(1));
        mail.open(KEY, Arc::clone(&other), 0);
        assert!(mail.lend(KEY, &other, plain()).is_none());
        assert!(mail.lend(KEY, &mailbox, plain()).is_some());
        assert_eq!(mail.take_back(KEY, &mailbox).unwrap().sent, 1);
        assert!(mail.take_back(KEY, &mailbox).is_none());
        assert!(mail.take_back(KEY, &other).is_some());
    }

    #[test]
    fn a_line_that_takes_nothing_is_left_to_the_library() {
        let (mut mail, mailbox) = opened(1);
        let model = Model::new(&Toy::default(), 1).unwrap();
        assert!(mail.lend(KEY, &mailbox, plain()).is_none());
        mail.deliver(&[delivery(3, None)]);
        assert!(!mail.say(&model));
        assert_eq!((mail.news.len(), mailbox.read(0).released), (1, 3));
        // What comes then goes the long way.
        mail.deliver(&[delivery(4, None)]);
        assert_eq!((mail.news.len(), mailbox.read(0).released), (2, 4));
        let mut back = mail.take_back(KEY, &mailbox).unwrap();
        assert_eq!(back.sent, 3);
        assert_eq!(back.take_log().unwrap().len(), 2);
        assert_eq!(mailbox.read(0).released, 4);
    }
}
