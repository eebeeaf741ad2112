// SPDX-License-Identifier: Apache-2.0

package index

import (
	"context"
	"maps"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/queue"
	"github.com/mailstead/mailstead/internal/tag"
	"github.com/mailstead/mailstead/internal/thread"
)

// Filter selects sent messages. Zero fields don't restrict the result. Of a list, a message must
// match one value.
type Filter struct {
	Domains      []db.ID           // sending domains
	Mailboxes    []db.ID           // mailboxes that submitted the message
	Recipients   []string          // addresses, or domains
	From         []string          // addresses, or domains
	Subject      string            // words that the subject must contain, in any order
	Statuses     []queue.State     // status of the message as a whole
	Metadata     map[string]string // metadata members with these values
	MetadataKeys []string          // metadata members with any value
	Tags         []string
	Thread       string
	Since        time.Time // created at this time or later
	Until        time.Time // created before this time
	// Redacted is for callers who may not read mail: forwarded messages are not found by their
	// author or subject.
	Redacted bool
}

// Limits of a filter.
const (
	maxFilterText = 1000 // bytes of each text
	maxFilters    = 10   // number of metadata members
)

// Limits on the work for one page. Beyond them the page is shorter and Next says where to continue.
const (
	maxIndexReads   = 50_000 // index entries
	maxMessageReads = 5_000  // messages
	// BatchSize is how many messages are read and checked at once.
	BatchSize = queue.MaxDeliveriesOf
)

// compiledFilter is a validated filter with its search terms.
type compiledFilter struct {
	Filter
	terms  []string   // terms that a message must have
	groups [][]string // groups of terms; a message must have one term of each
}

// compile validates a filter. The error is a fault.Invalid with all faults.
func (f Filter) compile() (*compiledFilter, error) {
	w := &compiledFilter{Filter: f}
	var bad fault.FieldErrors
	long := func(field, text string) bool {
		if len(text) > maxFilterText {
			bad.Add(field, "too_long", "This may have %d bytes.", maxFilterText)
		}
		return len(text) > maxFilterText
	}
	w.addAddressTerms(&bad, "recipient", f.Recipients, termRecipient, termRecipientDomain)
	w.addAddressTerms(&bad, "from", f.From, termSender, termSenderDomain)
	if f.Subject != "" && !long("subject", f.Subject) {
		found := splitWords(f.Subject)
		if len(found) == 0 {
			bad.Add("subject", "no_words", "Give at least one word: letters or digits.")
		}
		for _, word := range found {
			w.terms = append(w.terms, termSubjectWord+word)
		}
	}
	var submitters []string
	for _, id := range f.Mailboxes {
		submitters = append(submitters, termMailbox+id.String())
	}
	w.addGroup(submitters)
	if len(f.Metadata)+len(f.MetadataKeys) > maxFilters {
		bad.Add("metadata", "too_many", "Give %d members of the metadata at most.", maxFilters)
	}
	for _, key := range slices.Sorted(maps.Keys(f.Metadata)) {
		if !long("metadata", key+f.Metadata[key]) {
			w.terms = append(w.terms, termMetadataValue+key+"\x00"+f.Metadata[key])
		}
	}
	for _, key := range f.MetadataKeys {
		if !long("metadata_key", key) {
			w.terms = append(w.terms, termMetadataKey+key)
		}
	}
	w.addTagTerms(&bad, f.Tags)
	if f.Thread != "" && !thread.ValidID(f.Thread) {
		bad.Add("thread_id", "invalid_thread_id", "A thread id is 1 to %d printable characters.", thread.MaxIDLength)
	}
	return w, bad.Err()
}

func (w *compiledFilter) addTagTerms(bad *fault.FieldErrors, tags []string) {
	if err := tag.CheckFilter(tags); err != nil {
		bad.Add("tag", err.Code, "%s", err.Message)
		return
	}
	var terms []string
	for _, t := range tags {
		terms = append(terms, termTag+t)
	}
	w.addGroup(terms)
}

// addGroup adds terms of which a message must have one, if there are any.
func (w *compiledFilter) addGroup(terms []string) {
	if len(terms) > 0 {
		w.groups = append(w.groups, terms)
	}
}

// Check validates a filter. The error is a fault.Invalid with all faults.
func (f Filter) Check() error {
	_, err := f.compile()
	return err
}

// addAddressTerms adds the terms for addresses, or for domains with or without a leading @.
func (w *compiledFilter) addAddressTerms(bad *fault.FieldErrors, field string, texts []string, kind, domainKind string) {
	var terms []string
	for _, text := range texts {
		if at := strings.LastIndexByte(text, '@'); at <= 0 {
			if name, err := address.ParseMailDomain(text[at+1:]); err == nil {
				terms = append(terms, domainKind+name)
				continue
			}
		} else if a, err := address.Parse(text); err == nil {
			terms = append(terms, kind+a.Key())
			continue
		}
		bad.Add(field, "invalid_address", "This must be an address such as you@example.com, or a domain such as example.com.")
		return
	}
	w.addGroup(terms)
}

// matchesFields reports whether a message matches the criteria that don't need its deliveries.
func (w *compiledFilter) matchesFields(m Message) bool {
	if w.Redacted && m.Forwarded && (len(w.From) > 0 || w.Subject != "") {
		return false
	}
	return (len(w.Domains) == 0 || slices.Contains(w.Domains, m.Domain)) && (len(w.Mailboxes) == 0 || slices.Contains(w.Mailboxes, m.Mailbox)) && (w.Thread == "" || m.ThreadID == w.Thread) &&
		(w.Since.IsZero() || !m.CreatedAt.Before(w.Since)) && (w.Until.IsZero() || m.CreatedAt.Before(w.Until))
}

// matchesDeliveries reports whether a message with its deliveries matches the status and all terms.
func (w *compiledFilter) matchesDeliveries(m Message) bool {
	if len(w.Statuses) > 0 && !slices.Contains(w.Statuses, m.Status) {
		return false
	}
	if len(w.terms)+len(w.groups) == 0 {
		return true
	}
	has := messageTerms(m)
	return !slices.ContainsFunc(w.terms, func(t string) bool { return !has[t] }) &&
		!slices.ContainsFunc(w.groups, func(group []string) bool { return !slices.ContainsFunc(group, func(t string) bool { return has[t] }) })
}

// Result is a page of matching messages, newest first.
type Result struct {
	Messages []Message
	// More reports whether there may be more messages in the requested direction; Next is the id to
	// continue at. A page may be short or empty if the limit of work for one request was reached.
	More bool
	Next db.ID
}

// idTimeTolerance is the maximum difference between the time in an id and the time of acceptance.
const idTimeTolerance = time.Minute

// Find returns the account's messages that match a filter, with their deliveries, or a
// fault.Invalid that names every invalid field. It also finds messages accepted a moment ago.
func (x *Index) Find(ctx context.Context, account db.ID, f Filter, page db.Page) (Result, error) {
	w, err := f.compile()
	if err != nil {
		return Result{}, err
	}
	limit := page.Limit
	if limit <= 0 {
		limit = db.DefaultPageSize
	}
	s := &search{index: x, account: account, compiledFilter: w, lo: 0, hi: math.MaxInt64, limit: min(limit, db.MaxPageSize), indexReadsLeft: maxIndexReads, messageReadsLeft: maxMessageReads}
	switch {
	case page.After > 0:
		s.hi = page.After
	case page.Before > 0:
		s.lo, s.ascending = page.Before, true
	}
	if !f.Since.IsZero() {
		s.lo = max(s.lo, db.MinIDAt(f.Since.Add(-idTimeTolerance))-1)
	}
	if !f.Until.IsZero() {
		s.hi = min(s.hi, db.MinIDAt(f.Until.Add(idTimeTolerance)))
	}
	return s.run(ctx)
}
