// SPDX-License-Identifier: Apache-2.0

package folder

import (
	"context"
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
)

// keywordTable numbers the keyword sets of a folder's messages. A keyword keeps the spelling that
// was seen first. Sets are never removed: a table lives as long as its view.
type keywordTable struct {
	mu       sync.RWMutex
	ids      map[string]uint32
	sets     [][]string        // sorted; 0 is the empty set
	texts    []string          // as they are stored
	bytes    int               // memory of all sets, approximately
	newBytes int               // memory of the sets that change added
	full     bool              // whether messages have sets that the table did not accept
	spelling map[string]string // by lower case
}

// maxNewKeywordBytes limits, in bytes, the memory of sets that change adds. It is not freed while a
// session is open, even if no message has the sets any more.
const maxNewKeywordBytes = 8 << 20

// maxKeywordTableBytes limits, in bytes, the memory of all sets, since no quota counts the keywords
// of messages that clients append. The keywords of messages with further sets are read whenever
// they are reported (FillKeywords), and can only be replaced as a whole.
const maxKeywordTableBytes = 32 << 20

// overflowKeywords represents the sets that the table did not accept.
const overflowKeywords = math.MaxUint32

// keywordSetBytes returns approximately how many bytes of memory a set takes. Short words take more
// than their letters.
func keywordSetBytes(text string) int {
	return 96 + len(text) + 16*(1+strings.Count(text, " "))
}

func newKeywordTable() *keywordTable {
	return &keywordTable{ids: map[string]uint32{"": 0}, sets: [][]string{nil}, texts: []string{""}, spelling: map[string]string{}}
}

// id returns the number of a set in its stored form, or overflowKeywords if the table is full.
func (t *keywordTable) id(text string) uint32 {
	if text == "" {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.ids[text]; !known && t.bytes+keywordSetBytes(text) > maxKeywordTableBytes {
		t.full = true
		return overflowKeywords
	}
	return t.idLocked(text)
}

// isFull reports whether messages may have sets that the table lacks.
func (t *keywordTable) isFull() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.full
}

func (t *keywordTable) idLocked(text string) uint32 {
	id, ok := t.ids[text]
	if !ok {
		id = uint32(len(t.sets))
		text = strings.Clone(text)
		set := strings.Split(text, " ")
		t.ids[text], t.sets, t.texts = id, append(t.sets, set), append(t.texts, text)
		t.bytes += keywordSetBytes(text)
		for _, word := range set {
			if _, known := t.spelling[strings.ToLower(word)]; !known {
				t.spelling[strings.ToLower(word)] = word
			}
		}
	}
	return id
}

func (t *keywordTable) keywords(id uint32) []string {
	if id == 0 || id == overflowKeywords {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sets[id]
}

func (t *keywordTable) text(id uint32) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.texts[id]
}

// all returns every keyword, sorted.
func (t *keywordTable) all() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	words := make([]string, 0, len(t.spelling))
	for _, word := range t.spelling {
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

// count returns the number of keywords that all returns.
func (t *keywordTable) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.spelling)
}

// setsWith returns the sets that contain a keyword, in any case.
func (t *keywordTable) setsWith(word string) map[uint32]bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found := map[uint32]bool{}
	for id, set := range t.sets {
		if slices.ContainsFunc(set, func(w string) bool { return strings.EqualFold(w, word) }) {
			found[uint32(id)] = true
		}
	}
	return found
}

// change returns the set that results from applying an operation with words to another set.
func (t *keywordTable) change(from uint32, op FlagOp, words []string) (uint32, error) {
	if len(words) == 0 && op != ReplaceFlags || from == 0 && len(words) == 0 {
		return from, nil
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	var set []string
	if op != ReplaceFlags && from == overflowKeywords {
		return 0, keywordTableFullError()
	}
	if op != ReplaceFlags {
		set = slices.Clone(t.sets[from])
	}
	for _, word := range words {
		same := func(w string) bool { return strings.EqualFold(w, word) }
		switch {
		case op == RemoveFlags:
			set = slices.DeleteFunc(set, same)
		case !slices.ContainsFunc(set, same):
			if known, ok := t.spelling[strings.ToLower(word)]; ok {
				word = known
			}
			set = append(set, word)
		}
	}
	if len(set) > MaxKeywords {
		return 0, tooManyKeywordsError()
	}
	slices.Sort(set)
	text := strings.Join(set, " ")
	if _, known := t.ids[text]; !known {
		if t.newBytes += keywordSetBytes(text); t.newBytes > maxNewKeywordBytes {
			t.newBytes -= keywordSetBytes(text)
			return 0, keywordTableFullError()
		}
	}
	return t.idLocked(text), nil
}

var keywordsByUIDQuery = db.SQL(`SELECT uid, keywords FROM folder_message
	WHERE folder = $17 AND uid IN ($1, $2, $3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16)`)

// FillKeywords reads the Keywords that Sync and UpdateFlags could not return because the table did
// not accept them. They take memory of their own: fill and release at most MaxFillKeywords at a
// time.
func (v *View) FillKeywords(ctx context.Context, changes []FlagChange) error {
	return v.fillKeywords(ctx, len(changes), func(i int) *FlagChange { return &changes[i] })
}

// MaxFillKeywords is for how many messages keywords are read at once.
const MaxFillKeywords = 100

func (v *View) fillKeywords(ctx context.Context, n int, at func(i int) *FlagChange) error {
	var open []*FlagChange
	for i := range n {
		if c := at(i); c.keywordsMissing {
			open = append(open, c)
		}
	}
	for some := range slices.Chunk(open, uidListSize) {
		args := make([]any, uidListSize, uidListSize+1)
		for i := range args {
			args[i] = some[min(i, len(some)-1)].UID
		}
		err := v.store.DB.Each(ctx, keywordsByUIDQuery.With(append(args, v.shared.id)...), func(r db.Row) error {
			var uid uint32
			var text string
			err := r.Scan(&uid, &text)
			for _, c := range some {
				if c.UID == uid {
					c.Keywords = strings.Fields(text)
				}
			}
			return err
		})
		if err != nil {
			return err
		}
	}
	return nil
}

// memoryBytes returns approximately how many bytes of memory the table takes.
func (t *keywordTable) memoryBytes() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.bytes
}

func keywordTableFullError() error {
	return fault.New(fault.RateLimited, "folder_full_of_keywords", "The messages of this folder have had too many different keywords.")
}

func tooManyKeywordsError() error {
	return fault.New(fault.Invalid, "too_many_keywords", "A message can have at most %d keywords.", MaxKeywords)
}

// checkKeywords returns a fault for an invalid keyword (RFC 3501 §9, flag-keyword).
func checkKeywords(words []string) error {
	if len(words) > MaxKeywords {
		return tooManyKeywordsError()
	}
	for _, word := range words {
		bad := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`(){%*"\]`, r) }
		if word == "" || len(word) > MaxKeywordBytes || strings.ContainsFunc(word, bad) {
			return fault.New(fault.Invalid, "bad_keyword", "A keyword has 1 to %d ASCII letters, digits and signs.", MaxKeywordBytes)
		}
	}
	return nil
}

// formatKeywords returns the keywords of a new message in their stored form.
func formatKeywords(words []string) (string, error) {
	if len(words) == 0 {
		return "", nil
	}
	if err := checkKeywords(words); err != nil {
		return "", err
	}
	set := slices.Clone(words)
	slices.SortFunc(set, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	set = slices.CompactFunc(set, strings.EqualFold)
	slices.Sort(set)
	return strings.Join(set, " "), nil
}
