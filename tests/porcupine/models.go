package main

import (
	"encoding/json"
	"fmt"
	"hash/fnv"
	"math"

	"github.com/anishathalye/porcupine"
)

// kind is a sequential model, and how a line becomes an operation of it.
type kind struct {
	model     porcupine.Model
	operation func(line operation) (porcupine.Operation, error)
}

// models are the kinds of objects that histories are about.
//
//	integer  get -> n; set n; add_and_get d -> n; compare_and_set [expected, new] -> bool. It begins with 0.
//	lock     acquire -> token; release. It begins free, and tokens grow.
//	topic    publish data -> index, or 0 if the index is not known yet; latest -> index; get index -> [index, data], where the
//	         input 0 stands for the newest record; range from -> [[index, data], ...], all records from there on.
var models = map[string]kind{
	"integer": {integerModel, integerOperation},
	"lock":    {lockModel, lockOperation},
	"topic":   {topicModel, topicOperation},
}

func made(line operation, input, output any) porcupine.Operation {
	return porcupine.Operation{
		ClientId: line.Client, Input: input, Call: line.Call, Output: output, Return: returned(line),
	}
}

func unknown(line operation) error { return fmt.Errorf("there is no operation %q", line.Op) }

// parse reads a value, which has to be there.
func parse(data json.RawMessage, into any) error {
	if len(data) == 0 {
		return fmt.Errorf("a value is missing")
	}
	return json.Unmarshal(data, into)
}

// ---- integer

type integerInput struct {
	op            string
	value, second int64
}

type integerOutput struct {
	open  bool
	value int64
	was   bool
}

func integerOperation(line operation) (porcupine.Operation, error) {
	input, output := integerInput{op: line.Op}, integerOutput{open: line.Return == nil}
	var err error
	switch line.Op {
	case "get":
	case "set", "add_and_get":
		err = parse(line.Input, &input.value)
	case "compare_and_set":
		var both [2]int64
		err = parse(line.Input, &both)
		input.value, input.second = both[0], both[1]
	default:
		err = unknown(line)
	}
	if err == nil && !output.open {
		switch line.Op {
		case "get", "add_and_get":
			err = parse(line.Output, &output.value)
		case "compare_and_set":
			err = parse(line.Output, &output.was)
		}
	}
	return made(line, input, output), err
}

var integerModel = porcupine.Model{
	Init: func() any { return int64(0) },
	Step: func(state, asked, answered any) (bool, any) {
		value, input, output := state.(int64), asked.(integerInput), answered.(integerOutput)
		switch input.op {
		case "get":
			return output.open || output.value == value, value
		case "set":
			return true, input.value
		case "add_and_get":
			sum := value + input.value
			return output.open || output.value == sum, sum
		default:
			was := value == input.value
			if was {
				value = input.second
			}
			return output.open || output.was == was, value
		}
	},
	DescribeOperation: func(asked, answered any) string {
		input, output := asked.(integerInput), answered.(integerOutput)
		return fmt.Sprintf("%s(%d, %d) -> %s", input.op, input.value, input.second, shown(output.open, output.value, output.was))
	},
}

func shown(open bool, values ...any) string {
	if open {
		return "?"
	}
	return fmt.Sprint(values...)
}

// ---- lock

type lockInput struct {
	client  int
	acquire bool
}

type lockOutput struct {
	open  bool
	token uint64
}

// lockState has the client that holds the lock, from 1, or 0, and the newest token.
type lockState struct {
	holder int
	token  uint64
}

func lockOperation(line operation) (porcupine.Operation, error) {
	input, output := lockInput{client: line.Client + 1}, lockOutput{open: line.Return == nil}
	var err error
	switch line.Op {
	case "acquire":
		input.acquire = true
		if !output.open {
			err = parse(line.Output, &output.token)
		}
	case "release":
	default:
		err = unknown(line)
	}
	return made(line, input, output), err
}

var lockModel = porcupine.Model{
	Init: func() any { return lockState{} },
	Step: func(state, asked, answered any) (bool, any) {
		lock, input, output := state.(lockState), asked.(lockInput), answered.(lockOutput)
		if !input.acquire {
			if lock.holder != input.client {
				return output.open, lock // What was not answered may not have taken place.
			}
			return true, lockState{0, lock.token}
		}
		if lock.holder != 0 || (!output.open && output.token <= lock.token) {
			return output.open, lock
		}
		if output.open {
			return true, lockState{input.client, lock.token}
		}
		return true, lockState{input.client, output.token}
	},
	DescribeOperation: func(asked, answered any) string {
		input, output := asked.(lockInput), answered.(lockOutput)
		if input.acquire {
			return "acquire -> " + shown(output.open, output.token)
		}
		return "release"
	},
}

// ---- topic

// record is the newest record of a topic; the earlier ones are behind it. A nil record is a topic without any.
type record struct {
	before *record
	index  int64
	data   string
	hash   uint64
}

func (newest *record) length() int64 {
	if newest == nil {
		return 0
	}
	return newest.index
}

func (newest *record) followed(data string) *record {
	hash := fnv.New64a()
	if newest != nil {
		fmt.Fprintf(hash, "%x.", newest.hash)
	}
	hash.Write([]byte(data))
	return &record{newest, newest.length() + 1, data, hash.Sum64()}
}

type topicInput struct {
	op   string
	data string
	from int64
}

type entry struct {
	index int64
	data  string
}

func (read *entry) UnmarshalJSON(text []byte) error {
	return json.Unmarshal(text, &[2]any{&read.index, &read.data})
}

type topicOutput struct {
	open    bool
	index   int64
	entries []entry
}

func topicOperation(line operation) (porcupine.Operation, error) {
	input, output := topicInput{op: line.Op}, topicOutput{open: line.Return == nil}
	var err error
	switch line.Op {
	case "publish":
		err = parse(line.Input, &input.data)
	case "latest":
	case "get", "range":
		err = parse(line.Input, &input.from)
	default:
		err = unknown(line)
	}
	if err == nil && len(line.Output) > 0 && string(line.Output) != "null" {
		switch line.Op {
		case "publish", "latest":
			err = parse(line.Output, &output.index)
		case "get":
			output.entries = make([]entry, 1)
			err = parse(line.Output, &output.entries[0])
		case "range":
			err = parse(line.Output, &output.entries)
		}
	} else if err == nil && !output.open {
		err = fmt.Errorf("it has no output")
	}
	return made(line, input, output), err
}

var topicModel = porcupine.Model{
	Init: func() any { return (*record)(nil) },
	Step: func(state, asked, answered any) (bool, any) {
		newest, input, output := state.(*record), asked.(topicInput), answered.(topicOutput)
		switch input.op {
		case "publish":
			if output.index != 0 && output.index != newest.length()+1 {
				return false, newest
			}
			return true, newest.followed(input.data)
		case "latest":
			return output.open || output.index == newest.length(), newest
		case "get":
			at := input.from
			if at == 0 {
				at = newest.length()
			}
			return output.open || (len(output.entries) == 1 && agrees(newest, at, at, output.entries)), newest
		default:
			return output.open || agrees(newest, input.from, newest.length(), output.entries), newest
		}
	},
	Equal: func(a, b any) bool {
		one, other := a.(*record), b.(*record)
		return one == other || (one != nil && other != nil && one.index == other.index && one.hash == other.hash)
	},
	Hash: func(state any) uint64 {
		if newest := state.(*record); newest != nil {
			return newest.hash
		}
		return 0
	},
	DescribeOperation: func(asked, answered any) string {
		input, output := asked.(topicInput), answered.(topicOutput)
		if input.op == "publish" {
			return fmt.Sprintf("publish(%s) -> %s", input.data, shown(output.open && output.index == 0, output.index))
		}
		return fmt.Sprintf("%s(%d) -> %s", input.op, input.from, shown(output.open, output.index, output.entries))
	},
	DescribeState: func(state any) string { return fmt.Sprintf("%d records", state.(*record).length()) },
}

// agrees says whether these are the records from one index to another.
func agrees(newest *record, from, to int64, entries []entry) bool {
	if from < 1 || to > newest.length() || to-from+1 != int64(len(entries)) {
		return from > to && len(entries) == 0
	}
	at := newest
	for at != nil && at.index > to {
		at = at.before
	}
	for place := len(entries) - 1; place >= 0; place, at = place-1, at.before {
		if entries[place].index != at.index || entries[place].data != at.data {
			return false
		}
	}
	return true
}

// prepare adds to a history of a topic what follows from all of it, so that unanswered publishes do not have to be tried in every order.
//
// Records stay where they are. So a publish that was not answered, or answered without an index, has the index under which its record
// was read, if no other operation publishes the same data. If its record is not in a read of the whole topic that was called after
// everything else had been answered, it did not take place before the end, and is left out.
func prepare(kind string, lines []operation) []operation {
	if kind != "topic" {
		return lines
	}
	published, read := map[string]int{}, map[string]int64{}
	end, whole := int64(math.MinInt64), false
	for _, line := range lines {
		var data string
		if line.Op == "publish" && parse(line.Input, &data) == nil {
			published[data]++
		}
		if line.Return != nil && !isWhole(line) && *line.Return > end {
			end = *line.Return
		}
	}
	for _, line := range lines {
		entries := make([]entry, 1)
		switch {
		case line.Op == "range" && parse(line.Output, &entries) == nil:
			whole = whole || (isWhole(line) && line.Return != nil && line.Call > end)
		case line.Op == "get" && parse(line.Output, &entries[0]) == nil:
		default:
			continue
		}
		for _, entry := range entries {
			read[entry.data] = entry.index
		}
	}
	var kept []operation
	for _, line := range lines {
		var data string
		var index int64
		if line.Op == "publish" && json.Unmarshal(line.Output, &index) == nil && index == 0 {
			line.Return = nil // It is acknowledged before it has its place.
		}
		if line.Op == "publish" && parse(line.Input, &data) == nil && published[data] == 1 {
			at, seen := read[data]
			if index == 0 && seen {
				line.Output = json.RawMessage(fmt.Sprint(at))
			}
			if line.Return == nil && !seen && whole {
				continue
			}
		}
		kept = append(kept, line)
	}
	return kept
}

// isWhole says whether a line reads a topic from its beginning.
func isWhole(line operation) bool {
	var from int64
	return line.Op == "range" && json.Unmarshal(line.Input, &from) == nil && from == 1
}
