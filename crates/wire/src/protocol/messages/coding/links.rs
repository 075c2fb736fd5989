// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Links between hosts: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Link<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("stream", &self.stream);
        fields.put("namespace", &self.namespace);
        fields.put("epoch", &self.epoch);
        fields.put_some("target", &self.target);
        fields.put("path", &self.path);
        fields.put_some("life", &self.life);
        fields.put_if(self.forked, "forked", &self.forked);
        fields.end();
    }
}

impl<'b> Decode<'b> for Link<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut stream = None;
        let mut namespace = None;
        let mut epoch = None;
        let mut target = None;
        let mut path = None;
        let mut life = None;
        let mut forked = None;
        reader.map(|reader, member| match member {
            "stream" => reader.set(&mut stream),
            "namespace" => reader.set(&mut namespace),
            "epoch" => reader.set(&mut epoch),
            "target" => reader.set(&mut target),
            "path" => reader.set(&mut path),
            "life" => reader.set(&mut life),
            "forked" => reader.set(&mut forked),
            _ => reader.skip(),
        })?;
        Ok(Self {
            stream: stream.ok_or_else(|| Malformed::missing("stream"))?,
            namespace: namespace.ok_or_else(|| Malformed::missing("namespace"))?,
            epoch: epoch.ok_or_else(|| Malformed::missing("epoch"))?,
            target: target.unwrap_or_default(),
            path: path.unwrap_or_default(),
            life: life.unwrap_or_default(),
            forked: forked.unwrap_or_default(),
        })
    }
}

impl Encode for Linked {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("number", &self.number);
        fields.put("namespace", &self.namespace);
        fields.put("epoch", &self.epoch);
        fields.put_some("life", &self.life);
        fields.end();
    }
}

impl Decode<'_> for Linked {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut number = None;
        let mut namespace = None;
        let mut epoch = None;
        let mut life = None;
        reader.map(|reader, member| match member {
            "number" => reader.set(&mut number),
            "namespace" => reader.set(&mut namespace),
            "epoch" => reader.set(&mut epoch),
            "life" => reader.set(&mut life),
            _ => reader.skip(),
        })?;
        Ok(Self {
            number: number.ok_or_else(|| Malformed::missing("number"))?,
            namespace: namespace.ok_or_else(|| Malformed::missing("namespace"))?,
            epoch: epoch.ok_or_else(|| Malformed::missing("epoch"))?,
            life: life.unwrap_or_default(),
        })
    }
}

impl Encode for Deliver<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("link", &self.link);
        fields.put("first", &self.first);
        fields.put_if(self.gap, "gap", &self.gap);
        fields.put("items", &self.items);
        fields.end();
    }
}

impl<'b> Decode<'b> for Deliver<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut link = None;
        let mut first = None;
        let mut gap = None;
        let mut items = None;
        reader.map(|reader, member| match member {
            "link" => reader.set(&mut link),
            "first" => reader.set(&mut first),
            "gap" => reader.set(&mut gap),
            "items" => reader.set(&mut items),
            _ => reader.skip(),
        })?;
        Ok(Self {
            link: link.ok_or_else(|| Malformed::missing("link"))?,
            first: first.ok_or_else(|| Malformed::missing("first"))?,
            gap: gap.unwrap_or_default(),
            items: items.ok_or_else(|| Malformed::missing("items"))?,
        })
    }
}

impl Encode for Delivered {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("number", &self.number);
        fields.put_some("refused", &self.refused);
        fields.end();
    }
}

impl Decode<'_> for Delivered {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut number = None;
        let mut refused = None;
        reader.map(|reader, member| match member {
            "number" => reader.set(&mut number),
            "refused" => reader.set(&mut refused),
            _ => reader.skip(),
        })?;
        Ok(Self { number: number.ok_or_else(|| Malformed::missing("number"))?, refused: refused.unwrap_or_default() })
    }
}

impl Encode for FollowTables<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("tables", &self.tables);
        fields.put("after", &self.after);
        fields.put("wait_ms", &self.wait_ms);
        fields.end();
    }
}

impl<'b> Decode<'b> for FollowTables<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut tables = None;
        let mut after = None;
        let mut wait_ms = None;
        reader.map(|reader, member| match member {
            "tables" => reader.set(&mut tables),
            "after" => reader.set(&mut after),
            "wait_ms" => reader.set(&mut wait_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            tables: tables.ok_or_else(|| Malformed::missing("tables"))?,
            after: after.ok_or_else(|| Malformed::missing("after"))?,
            wait_ms: wait_ms.ok_or_else(|| Malformed::missing("wait_ms"))?,
        })
    }
}

impl Encode for TableBatches<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("tables", &self.tables);
        fields.put("records", &self.records);
        fields.put("upto", &self.upto);
        fields.put_if(self.is_newest, "is_newest", &self.is_newest);
        fields.end();
    }
}

impl<'b> Decode<'b> for TableBatches<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut tables = None;
        let mut records = None;
        let mut upto = None;
        let mut is_newest = None;
        reader.map(|reader, member| match member {
            "tables" => reader.set(&mut tables),
            "records" => reader.set(&mut records),
            "upto" => reader.set(&mut upto),
            "is_newest" => reader.set(&mut is_newest),
            _ => reader.skip(),
        })?;
        Ok(Self {
            tables: tables.ok_or_else(|| Malformed::missing("tables"))?,
            records: records.ok_or_else(|| Malformed::missing("records"))?,
            upto: upto.ok_or_else(|| Malformed::missing("upto"))?,
            is_newest: is_newest.unwrap_or_default(),
        })
    }
}

impl Encode for LoadTable<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("table", &self.table);
        fields.put("at", &self.at);
        fields.put("above", &self.above);
        fields.end();
    }
}

impl<'b> Decode<'b> for LoadTable<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut table = None;
        let mut at = None;
        let mut above = None;
        reader.map(|reader, member| match member {
            "table" => reader.set(&mut table),
            "at" => reader.set(&mut at),
            "above" => reader.set(&mut above),
            _ => reader.skip(),
        })?;
        Ok(Self {
            table: table.ok_or_else(|| Malformed::missing("table"))?,
            at: at.ok_or_else(|| Malformed::missing("at"))?,
            above: above.ok_or_else(|| Malformed::missing("above"))?,
        })
    }
}

impl Encode for LoadedTable<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("table", &self.table);
        fields.put("records", &self.records);
        fields.put_if(self.more, "more", &self.more);
        fields.end();
    }
}

impl<'b> Decode<'b> for LoadedTable<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut table = None;
        let mut records = None;
        let mut more = None;
        reader.map(|reader, member| match member {
            "table" => reader.set(&mut table),
            "records" => reader.set(&mut records),
            "more" => reader.set(&mut more),
            _ => reader.skip(),
        })?;
        Ok(Self {
            table: table.ok_or_else(|| Malformed::missing("table"))?,
            records: records.ok_or_else(|| Malformed::missing("records"))?,
            more: more.unwrap_or_default(),
        })
    }
}

impl Encode for PathStep {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("namespace", &self.namespace);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl Decode<'_> for PathStep {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut namespace = None;
        let mut log = None;
        reader.map(|reader, member| match member {
            "namespace" => reader.set(&mut namespace),
            "log" => reader.set(&mut log),
            _ => reader.skip(),
        })?;
        Ok(Self {
            namespace: namespace.ok_or_else(|| Malformed::missing("namespace"))?,
            log: log.ok_or_else(|| Malformed::missing("log"))?,
        })
    }
}

impl Encode for Life {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("number", &self.number);
        fields.put("id", &self.id);
        fields.end();
    }
}

impl Decode<'_> for Life {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut number = None;
        let mut id = None;
        reader.map(|reader, member| match member {
            "number" => reader.set(&mut number),
            "id" => reader.set(&mut id),
            _ => reader.skip(),
        })?;
        Ok(Self {
            number: number.ok_or_else(|| Malformed::missing("number"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
        })
    }
}

impl Encode for Item<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("data", &self.data);
        fields.put("id", &self.id);
        fields.put("hlc", &self.hlc);
        fields.put_some("function", &self.function);
        fields.put_if(self.void, "void", &self.void);
        fields.end();
    }
}

impl<'b> Decode<'b> for Item<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut data = None;
        let mut id = None;
        let mut hlc = None;
        let mut function = None;
        let mut void = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "data" => reader.set(&mut data),
            "id" => reader.set(&mut id),
            "hlc" => reader.set(&mut hlc),
            "function" => reader.set(&mut function),
            "void" => reader.set(&mut void),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
            hlc: hlc.ok_or_else(|| Malformed::missing("hlc"))?,
            function: function.unwrap_or_default(),
            void: void.unwrap_or_default(),
        })
    }
}

impl Encode for Refused {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("code", &self.code);
        fields.put("detail", &self.detail);
        fields.put_some("retry_after_ms", &self.retry_after_ms);
        fields.end();
    }
}

impl Decode<'_> for Refused {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut code = None;
        let mut detail = None;
        let mut retry_after_ms = None;
        reader.map(|reader, member| match member {
            "code" => reader.set(&mut code),
            "detail" => reader.set(&mut detail),
            "retry_after_ms" => reader.set(&mut retry_after_ms),
            _ => reader.skip(),
        })?;
        Ok(Self {
            code: code.ok_or_else(|| Malformed::missing("code"))?,
            detail: detail.ok_or_else(|| Malformed::missing("detail"))?,
            retry_after_ms: retry_after_ms.unwrap_or_default(),
        })
    }
}

impl Encode for FollowedTable<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("incarnation", &self.incarnation);
        fields.put("latest", &self.latest);
        fields.put("options", &self.options);
        fields.end();
    }
}

impl<'b> Decode<'b> for FollowedTable<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut incarnation = None;
        let mut latest = None;
        let mut options = None;
        reader.map(|reader, member| match member {
            "incarnation" => reader.set(&mut incarnation),
            "latest" => reader.set(&mut latest),
            "options" => reader.set(&mut options),
            _ => reader.skip(),
        })?;
        Ok(Self {
            incarnation: incarnation.ok_or_else(|| Malformed::missing("incarnation"))?,
            latest: latest.ok_or_else(|| Malformed::missing("latest"))?,
            options: options.ok_or_else(|| Malformed::missing("options"))?,
        })
    }
}

impl Encode for TableRecord<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("table", &self.table);
        fields.put("seqno", &self.seqno);
        fields.put("id", &self.id);
        fields.put("hlc", &self.hlc);
        fields.put("key", &self.key);
        fields.put("data", &self.data);
        fields.put_if(self.is_deletion, "is_deletion", &self.is_deletion);
        fields.put_if(self.expires_us != 0, "expires_us", &self.expires_us);
        fields.put_if(self.ends, "ends", &self.ends);
        fields.end();
    }
}

impl<'b> Decode<'b> for TableRecord<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut table = None;
        let mut seqno = None;
        let mut id = None;
        let mut hlc = None;
        let mut key = None;
        let mut data = None;
        let mut is_deletion = None;
        let mut expires_us = None;
        let mut ends = None;
        reader.map(|reader, member| match member {
            "table" => reader.set(&mut table),
            "seqno" => reader.set(&mut seqno),
            "id" => reader.set(&mut id),
            "hlc" => reader.set(&mut hlc),
            "key" => reader.set(&mut key),
            "data" => reader.set(&mut data),
            "is_deletion" => reader.set(&mut is_deletion),
            "expires_us" => reader.set(&mut expires_us),
            "ends" => reader.set(&mut ends),
            _ => reader.skip(),
        })?;
        Ok(Self {
            table: table.ok_or_else(|| Malformed::missing("table"))?,
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
            hlc: hlc.ok_or_else(|| Malformed::missing("hlc"))?,
            key: key.ok_or_else(|| Malformed::missing("key"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            is_deletion: is_deletion.unwrap_or_default(),
            expires_us: expires_us.unwrap_or_default(),
            ends: ends.unwrap_or_default(),
        })
    }
}
