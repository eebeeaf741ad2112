// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/signal"
)

// turnsOfOne is how many templates an account fills in at a time. What makes the
// text of a hostile html of 1 MB takes seconds of a processor and much memory: a
// hundred of one account at once would be felt by all others. So it gets half of
// the processors at most.
func turnsOfOne() int { return max(1, signal.Processors/2) }

// Used is a template filled in for a send.
type Used struct {
	Template db.ID
	Version  int
	Rendered
}

// Render fills in the published version of an account's template. variables is
// a JSON object; empty is none. Faults: fault.NotFound, and fault.Invalid with a
// field for each variable that is missing or wrong.
func (t *Templates) Render(ctx context.Context, account, id db.ID, variables json.RawMessage) (Used, error) {
	pass, err := t.turns.Take(ctx, account, turnsOfOne())
	if err != nil {
		return Used{}, err
	}
	defer pass()
	found, err := db.All(ctx, t.DB, byID.With(id, account), scan)
	if err != nil {
		return Used{}, err
	}
	if len(found) == 0 {
		return Used{}, notFound()
	}
	values, err := Values(variables)
	if err != nil {
		return Used{}, err
	}
	c, err := t.compiled(ctx, id, found[0].Published)
	if err != nil {
		return Used{}, err
	}
	out, err := c.Render(values)
	return Used{id, found[0].Published, out}, err
}

// Preview fills in a version (0: the newest) and tells what is missing and
// what was not used, in place of refusing it.
func (t *Templates) Preview(ctx context.Context, account, id db.ID, number int, variables json.RawMessage) (Rendered, error) {
	values, err := Values(variables)
	if err != nil {
		return Rendered{}, err
	}
	found, err := t.GetVersion(ctx, account, id, number)
	if err != nil {
		return Rendered{}, err
	}
	return t.try(ctx, account, found.Content, values)
}

// Try is Preview for what is not saved yet.
func (t *Templates) Try(ctx context.Context, account db.ID, c Content, variables json.RawMessage) (Rendered, error) {
	values, err := Values(variables)
	if err != nil {
		return Rendered{}, err
	}
	return t.try(ctx, account, c, values)
}

func (t *Templates) try(ctx context.Context, account db.ID, content Content, values map[string]any) (Rendered, error) {
	pass, err := t.turns.Take(ctx, account, turnsOfOne())
	if err != nil {
		return Rendered{}, err
	}
	defer pass()
	c, err := Compile(content)
	if err != nil {
		return Rendered{}, err
	}
	return c.Preview(values)
}

// Values reads variables: a JSON object of at most MaxValues bytes; empty is
// none.
func Values(text json.RawMessage) (map[string]any, error) {
	var bad fault.Fields
	if len(text) == 0 || string(text) == "null" {
		return nil, nil
	}
	if len(text) > MaxValues {
		bad.Add("variables", "too_long", "The variables may have %d bytes.", MaxValues)
		return nil, bad.Err()
	}
	d := json.NewDecoder(strings.NewReader(string(text)))
	d.UseNumber()
	var values map[string]any
	if err := d.Decode(&values); err != nil {
		bad.Add("variables", "wrong_type", "This must be an object.")
	}
	return values, bad.Err()
}

// cache keeps compiled versions, which never change. It is bounded by the bytes
// that they take, and forgets at random.
type cache struct {
	mu    sync.Mutex
	ready map[cached]*Compiled
	bytes int
}

type cached struct {
	template db.ID
	version  int
}

const maxCached = 16 << 20

func (t *Templates) compiled(ctx context.Context, id db.ID, number int) (*Compiled, error) {
	key := cached{id, number}
	t.cache.mu.Lock()
	c := t.cache.ready[key]
	t.cache.mu.Unlock()
	if c != nil {
		return c, nil
	}
	v, err := t.version(ctx, id, number)
	if err != nil {
		return nil, err
	}
	if c, err = Compile(v.Content); err != nil {
		return nil, err
	}
	t.cache.keep(key, c)
	return c, nil
}

func (c *cache) keep(key cached, compiled *Compiled) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.ready == nil {
		c.ready = map[cached]*Compiled{}
	}
	size := compiled.size()
	if c.ready[key] != nil || size > maxCached {
		return
	}
	c.ready[key] = compiled
	c.bytes += size
	for other, one := range c.ready {
		if c.bytes <= maxCached {
			return
		}
		if other != key {
			delete(c.ready, other)
			c.bytes -= one.size()
		}
	}
}

// nodeBytes is about what a node takes; a source of five bytes may be one.
const nodeBytes = 200

func (c *Compiled) size() int {
	return 4<<10 + 4*(len(c.content.Subject)+len(c.content.HTML)+len(c.content.Text)) +
		nodeBytes*(c.subject.nodes+c.html.nodes+c.text.nodes)
}
