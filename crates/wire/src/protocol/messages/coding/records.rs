// Generated from spec/messages.toml by `cargo run -p millrace-generate`.
//! Records: how they are encoded and decoded.

use crate::protocol::{
    codec::{Decode, Encode, Fields, Malformed, MessageReader},
    messages::*,
};

impl Encode for Append<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("data", &self.data);
        fields.put_some("durability", &self.durability);
        fields.put_some("function", &self.function);
        fields.put_some("key", &self.key);
        fields.put_some("fence", &self.fence);
        fields.end();
    }
}

impl<'b> Decode<'b> for Append<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut data = None;
        let mut durability = None;
        let mut function = None;
        let mut key = None;
        let mut fence = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "data" => reader.set(&mut data),
            "durability" => reader.set(&mut durability),
            "function" => reader.set(&mut function),
            "key" => reader.set(&mut key),
            "fence" => reader.set(&mut fence),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            durability: durability.unwrap_or_default(),
            function: function.unwrap_or_default(),
            key: key.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
        })
    }
}

impl Encode for Appended {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("seqno", &self.seqno);
        fields.put("id", &self.id);
        fields.end();
    }
}

impl Decode<'_> for Appended {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut seqno = None;
        let mut id = None;
        reader.map(|reader, member| match member {
            "seqno" => reader.set(&mut seqno),
            "id" => reader.set(&mut id),
            _ => reader.skip(),
        })?;
        Ok(Self {
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
        })
    }
}

impl Encode for AppendMany<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("records", &self.records);
        fields.put_some("durability", &self.durability);
        fields.put_some("key", &self.key);
        fields.put_some("fence", &self.fence);
        fields.end();
    }
}

impl<'b> Decode<'b> for AppendMany<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut records = None;
        let mut durability = None;
        let mut key = None;
        let mut fence = None;
        reader.map(|reader, member| match member {
            "records" => reader.set(&mut records),
            "durability" => reader.set(&mut durability),
            "key" => reader.set(&mut key),
            "fence" => reader.set(&mut fence),
            _ => reader.skip(),
        })?;
        Ok(Self {
            records: records.ok_or_else(|| Malformed::missing("records"))?,
            durability: durability.unwrap_or_default(),
            key: key.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
        })
    }
}

impl Encode for AppendedMany {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("records", &self.records);
        fields.end();
    }
}

impl Decode<'_> for AppendedMany {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut records = None;
        reader.map(|reader, member| match member {
            "records" => reader.set(&mut records),
            _ => reader.skip(),
        })?;
        Ok(Self { records: records.ok_or_else(|| Malformed::missing("records"))? })
    }
}

impl Encode for Get<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("seqno", &self.seqno);
        fields.put("wait_ms", &self.wait_ms);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Get<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut seqno = None;
        let mut wait_ms = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "seqno" => reader.set(&mut seqno),
            "wait_ms" => reader.set(&mut wait_ms),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            wait_ms: wait_ms.unwrap_or_default(),
            durability: durability.unwrap_or_default(),
        })
    }
}

impl Encode for Record<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("seqno", &self.seqno);
        fields.put("id", &self.id);
        fields.put("hlc", &self.hlc);
        fields.put_if(!self.cause.is_none(), "cause", &self.cause);
        fields.put("data", &self.data);
        fields.put_if(!self.headers.is_empty(), "headers", &self.headers);
        fields.end();
    }
}

impl<'b> Decode<'b> for Record<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut seqno = None;
        let mut id = None;
        let mut hlc = None;
        let mut cause = None;
        let mut data = None;
        let mut headers = None;
        reader.map(|reader, member| match member {
            "seqno" => reader.set(&mut seqno),
            "id" => reader.set(&mut id),
            "hlc" => reader.set(&mut hlc),
            "cause" => reader.set(&mut cause),
            "data" => reader.set(&mut data),
            "headers" => reader.set(&mut headers),
            _ => reader.skip(),
        })?;
        Ok(Self {
            seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))?,
            id: id.ok_or_else(|| Malformed::missing("id"))?,
            hlc: hlc.ok_or_else(|| Malformed::missing("hlc"))?,
            cause: cause.unwrap_or_default(),
            data: data.ok_or_else(|| Malformed::missing("data"))?,
            headers: headers.unwrap_or_default(),
        })
    }
}

impl Encode for Range<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("from", &self.from);
        fields.put("count", &self.count);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Range<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut from = None;
        let mut count = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "from" => reader.set(&mut from),
            "count" => reader.set(&mut count),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            from: from.ok_or_else(|| Malformed::missing("from"))?,
            count: count.ok_or_else(|| Malformed::missing("count"))?,
            durability: durability.unwrap_or_default(),
        })
    }
}

impl Encode for Records<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("incarnation", &self.incarnation);
        fields.put("records", &self.records);
        fields.put("next", &self.next);
        fields.end();
    }
}

impl<'b> Decode<'b> for Records<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut incarnation = None;
        let mut records = None;
        let mut next = None;
        reader.map(|reader, member| match member {
            "incarnation" => reader.set(&mut incarnation),
            "records" => reader.set(&mut records),
            "next" => reader.set(&mut next),
            _ => reader.skip(),
        })?;
        Ok(Self {
            incarnation: incarnation.ok_or_else(|| Malformed::missing("incarnation"))?,
            records: records.ok_or_else(|| Malformed::missing("records"))?,
            next: next.ok_or_else(|| Malformed::missing("next"))?,
        })
    }
}

impl Encode for Latest<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("above", &self.above);
        fields.put("wait_ms", &self.wait_ms);
        fields.put_some("durability", &self.durability);
        fields.end();
    }
}

impl<'b> Decode<'b> for Latest<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut above = None;
        let mut wait_ms = None;
        let mut durability = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "above" => reader.set(&mut above),
            "wait_ms" => reader.set(&mut wait_ms),
            "durability" => reader.set(&mut durability),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            above: above.unwrap_or_default(),
            wait_ms: wait_ms.unwrap_or_default(),
            durability: durability.unwrap_or_default(),
        })
    }
}

impl Encode for Seqno {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("seqno", &self.seqno);
        fields.end();
    }
}

impl Decode<'_> for Seqno {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut seqno = None;
        reader.map(|reader, member| match member {
            "seqno" => reader.set(&mut seqno),
            _ => reader.skip(),
        })?;
        Ok(Self { seqno: seqno.ok_or_else(|| Malformed::missing("seqno"))? })
    }
}

impl Encode for CreateLog<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("history", &self.history);
        fields.end();
    }
}

impl<'b> Decode<'b> for CreateLog<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut history = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "history" => reader.set(&mut history),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            history: history.ok_or_else(|| Malformed::missing("history"))?,
        })
    }
}

impl Encode for Done {
    fn encode(&self, out: &mut Vec<u8>) {
        Fields::begin(out).end();
    }
}

impl Decode<'_> for Done {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        reader.map(|reader, _| reader.skip())?;
        Ok(Self {})
    }
}

impl Encode for RemoveLog<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.end();
    }
}

impl<'b> Decode<'b> for RemoveLog<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            _ => reader.skip(),
        })?;
        Ok(Self { log: log.ok_or_else(|| Malformed::missing("log"))? })
    }
}

impl Encode for Show<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("path", &self.path);
        fields.end();
    }
}

impl<'b> Decode<'b> for Show<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut path = None;
        reader.map(|reader, member| match member {
            "path" => reader.set(&mut path),
            _ => reader.skip(),
        })?;
        Ok(Self { path: path.ok_or_else(|| Malformed::missing("path"))? })
    }
}

impl Encode for Document<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("json", &self.json);
        fields.end();
    }
}

impl<'b> Decode<'b> for Document<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut json = None;
        reader.map(|reader, member| match member {
            "json" => reader.set(&mut json),
            _ => reader.skip(),
        })?;
        Ok(Self { json: json.ok_or_else(|| Malformed::missing("json"))? })
    }
}

impl Encode for Table<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("table", &self.table);
        fields.put("request", &self.request);
        fields.put_some("durability", &self.durability);
        fields.put_some("fence", &self.fence);
        fields.put_if(!self.after.is_none(), "after", &self.after);
        fields.end();
    }
}

impl<'b> Decode<'b> for Table<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut table = None;
        let mut request = None;
        let mut durability = None;
        let mut fence = None;
        let mut after = None;
        reader.map(|reader, member| match member {
            "table" => reader.set(&mut table),
            "request" => reader.set(&mut request),
            "durability" => reader.set(&mut durability),
            "fence" => reader.set(&mut fence),
            "after" => reader.set(&mut after),
            _ => reader.skip(),
        })?;
        Ok(Self {
            table: table.ok_or_else(|| Malformed::missing("table"))?,
            request: request.ok_or_else(|| Malformed::missing("request"))?,
            durability: durability.unwrap_or_default(),
            fence: fence.unwrap_or_default(),
            after: after.unwrap_or_default(),
        })
    }
}

impl Encode for OfTable<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("answer", &self.answer);
        fields.put_if(!self.token.is_none(), "token", &self.token);
        fields.end();
    }
}

impl<'b> Decode<'b> for OfTable<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut answer = None;
        let mut token = None;
        reader.map(|reader, member| match member {
            "answer" => reader.set(&mut answer),
            "token" => reader.set(&mut token),
            _ => reader.skip(),
        })?;
        Ok(Self { answer: answer.ok_or_else(|| Malformed::missing("answer"))?, token: token.unwrap_or_default() })
    }
}

impl Encode for Repair<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("json", &self.json);
        fields.end();
    }
}

impl<'b> Decode<'b> for Repair<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut json = None;
        reader.map(|reader, member| match member {
            "json" => reader.set(&mut json),
            _ => reader.skip(),
        })?;
        Ok(Self { json: json.ok_or_else(|| Malformed::missing("json"))? })
    }
}

impl Encode for SetLog<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("history", &self.history);
        fields.end();
    }
}

impl<'b> Decode<'b> for SetLog<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut history = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "history" => reader.set(&mut history),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            history: history.ok_or_else(|| Malformed::missing("history"))?,
        })
    }
}

impl Encode for CancelRun {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("run", &self.run);
        fields.end();
    }
}

impl Decode<'_> for CancelRun {
    fn decode(reader: &mut MessageReader<'_>) -> Result<Self, Malformed> {
        let mut run = None;
        reader.map(|reader, member| match member {
            "run" => reader.set(&mut run),
            _ => reader.skip(),
        })?;
        Ok(Self { run: run.ok_or_else(|| Malformed::missing("run"))? })
    }
}

impl Encode for Fence<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("name", &self.name);
        fields.put("token", &self.token);
        fields.end();
    }
}

impl<'b> Decode<'b> for Fence<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut name = None;
        let mut token = None;
        reader.map(|reader, member| match member {
            "name" => reader.set(&mut name),
            "token" => reader.set(&mut token),
            _ => reader.skip(),
        })?;
        Ok(Self {
            name: name.ok_or_else(|| Malformed::missing("name"))?,
            token: token.ok_or_else(|| Malformed::missing("token"))?,
        })
    }
}

impl Encode for NewRecord<'_> {
    fn encode(&self, out: &mut Vec<u8>) {
        let mut fields = Fields::begin(out);
        fields.put("log", &self.log);
        fields.put("data", &self.data);
        fields.end();
    }
}

impl<'b> Decode<'b> for NewRecord<'b> {
    fn decode(reader: &mut MessageReader<'b>) -> Result<Self, Malformed> {
        let mut log = None;
        let mut data = None;
        reader.map(|reader, member| match member {
            "log" => reader.set(&mut log),
            "data" => reader.set(&mut data),
            _ => reader.skip(),
        })?;
        Ok(Self {
            log: log.ok_or_else(|| Malformed::missing("log"))?,
            data: data.ok_or_else(|| Malformed::missing("data"))?,
        })
    }
}
