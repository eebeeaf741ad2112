// SPDX-License-Identifier: Apache-2.0

package template

import (
	"context"
	"encoding/json"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/notify"
)

// rendersPerAccount is how many templates an account may render at a time: half of the processors.
// Hostile HTML of 1 MB takes seconds of CPU time and much memory, and a hundred at once would slow
// down all other accounts.
func rendersPerAccount() int { return max(1, notify.Processors/2) }

// RenderResult is a template rendered for a send.
type RenderResult struct {
	Template db.ID
	Version  int
	Output
}

// Renderer renders the templates of an account for one request. It looks up each template once, so
// that all messages of a request get the same version.
type Renderer struct {
	templates *Templates
	account   db.ID
	found     map[string]publishedVersion // by the name in the request
}

// publishedVersion is the version of a template that is sent.
type publishedVersion struct {
	id       db.ID
	number   int
	compiled *CompiledTemplate
}

// NewRenderer returns a Renderer for an account.
func (t *Templates) NewRenderer(account db.ID) *Renderer {
	return &Renderer{t, account, map[string]publishedVersion{}}
}

// Render renders the published version of the template with an id or alias. variables is a JSON
// object; empty means none. It returns fault.NotFound, or a fault.Invalid with a field for each
// variable that is missing or wrong.
func (r *Renderer) Render(ctx context.Context, name string, variables json.RawMessage) (RenderResult, error) {
	pass, err := r.templates.semaphores.Acquire(ctx, r.account, rendersPerAccount())
	if err != nil {
		return RenderResult{}, err
	}
	defer pass()
	v, err := r.find(ctx, name)
	if err != nil {
		return RenderResult{}, err
	}
	values, err := ParseValues(variables)
	if err != nil {
		return RenderResult{}, err
	}
	out, err := v.compiled.Render(values)
	return RenderResult{v.id, v.number, out}, err
}

func (r *Renderer) find(ctx context.Context, name string) (v publishedVersion, err error) {
	if v, known := r.found[name]; known {
		return v, nil
	}
	id, err := r.templates.FindID(ctx, r.account, name)
	if err != nil {
		return v, err
	}
	t, err := findTemplate(ctx, r.templates.DB, templateByIDQuery.With(id, r.account))
	if err != nil {
		return v, err
	}
	v = publishedVersion{id: id, number: t.Published}
	if v.compiled, err = r.templates.loadCompiled(ctx, id, t.Published); err == nil {
		r.found[name] = v
	}
	return v, err
}

// Preview renders a version (0: the newest). It reports missing and unused variables instead of
// returning a fault.
func (t *Templates) Preview(ctx context.Context, account, id db.ID, number int, variables json.RawMessage) (Output, error) {
	values, err := ParseValues(variables)
	if err != nil {
		return Output{}, err
	}
	found, err := t.GetVersion(ctx, account, id, number)
	if err != nil {
		return Output{}, err
	}
	return t.previewContent(ctx, account, found.Content, values)
}

// PreviewContent is Preview for content that is not saved.
func (t *Templates) PreviewContent(ctx context.Context, account db.ID, c Content, variables json.RawMessage) (Output, error) {
	values, err := ParseValues(variables)
	if err != nil {
		return Output{}, err
	}
	return t.previewContent(ctx, account, c, values)
}

func (t *Templates) previewContent(ctx context.Context, account db.ID, content Content, values map[string]any) (Output, error) {
	pass, err := t.semaphores.Acquire(ctx, account, rendersPerAccount())
	if err != nil {
		return Output{}, err
	}
	defer pass()
	c, err := Compile(content)
	if err != nil {
		return Output{}, err
	}
	return c.Preview(values)
}

// ParseValues parses variables: a JSON object of at most MaxValues bytes; empty means none.
func ParseValues(text json.RawMessage) (map[string]any, error) {
	var bad fault.FieldErrors
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

// cache is a cache of compiled versions, which never change. It is limited by their total bytes and
// evicts random entries.
type cache struct {
	mu      sync.Mutex
	entries map[cacheKey]*CompiledTemplate
	bytes   int
}

type cacheKey struct {
	template db.ID
	version  int
}

const maxCacheBytes = 16 << 20

func (t *Templates) loadCompiled(ctx context.Context, id db.ID, number int) (*CompiledTemplate, error) {
	key := cacheKey{id, number}
	t.cache.mu.Lock()
	c := t.cache.entries[key]
	t.cache.mu.Unlock()
	if c != nil {
		return c, nil
	}
	v, err := findVersion(ctx, t.DB, id, number)
	if err != nil {
		return nil, err
	}
	if c, err = Compile(v.Content); err != nil {
		return nil, err
	}
	t.cache.add(key, c)
	return c, nil
}

func (c *cache) add(key cacheKey, compiled *CompiledTemplate) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.entries == nil {
		c.entries = map[cacheKey]*CompiledTemplate{}
	}
	size := compiled.size()
	if c.entries[key] != nil || size > maxCacheBytes {
		return
	}
	c.entries[key] = compiled
	c.bytes += size
	for other, one := range c.entries {
		if c.bytes <= maxCacheBytes {
			return
		}
		if other != key {
			delete(c.entries, other)
			c.bytes -= one.size()
		}
	}
}

// nodeBytes is the approximate size of a node; five bytes of source may be a node.
const nodeBytes = 200

func (c *CompiledTemplate) size() int {
	return 4<<10 + 4*(len(c.content.Subject)+len(c.content.HTML)+len(c.content.Text)) +
		nodeBytes*(c.subject.nodeCount+c.html.nodeCount+c.text.nodeCount)
}
