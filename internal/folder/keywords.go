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

// keywordTable numbers the sets of keywords that messages of a folder have. A
// keyword keeps the spelling that was seen first. Sets are never taken out: a
// table lives as long as the view that it belongs to.
type keywordTable struct {
	mu       sync.RWMutex
	ids      map[string]uint32
	sets     [][]string        // sorted; 0 is the empty set
	texts    []string          // as they are stored
	bytes    int               // of memory that all take, about
	newBytes int               // of them, by those that change made
	full     bool              // messages have sets that the table did not take
	spelling map[string]string // by lower case
}

// maxNewKeywordBytes bounds, in bytes of memory, the sets that change makes: nothing gives them back
// while a session stays, even if no message has them any more.
const maxNewKeywordBytes = 8 << 20

// maxKeywordTableBytes bounds, in bytes of memory, all sets: no quota counts the keywords of messages
// that clients append. Those of messages with the sets that are too many are read
// whenever they are told (FillKeywords), and can't be changed but by replacing them.
const maxKeywordTableBytes = 32 << 20

// overflowKeywords stands for the sets that the table did not take.
const overflowKeywords = math.MaxUint32

// keywordSetBytes is about the memory, in bytes, that a set takes: its words more than
// their letters if they are short.
func keywordSetBytes(text string) int {
	return 96 + len(text) + 16*(1+strings.Count(text, " "))
}

func newKeywordTable() *keywordTable {
	return &keywordTable{ids: map[string]uint32{"": 0}, sets: [][]string{nil}, texts: []string{""}, spelling: map[string]string{}}
}

// id returns the number of a set as it is stored, overflowKeywords if the table is
// full.
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

// isFull reports whether messages may have other sets.
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

// count returns how many keywords all returns.
func (t *keywordTable) count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.spelling)
}

// setsWith returns for which sets a keyword, in any case, is in them.
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

// change returns the set that an operation with words makes of another.
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

// FillKeywords reads the Keywords that Sync and Store could not tell, as the
// table did not take them. They take memory of their own: fill, and forget, at
// most MaxFillKeywords at a time.
func (v *View) FillKeywords(ctx context.Context, changes []FlagChange) error {
	return v.fillKeywords(ctx, len(changes), func(i int) *FlagChange { return &changes[i] })
}

// MaxFillKeywords is of how many messages keywords are read at once.
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

// memoryBytes is about how many bytes of memory the table takes.
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

// checkKeywords refuses what can't be a keyword (RFC 3501 §9, flag-keyword).
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

// formatKeywords is how the keywords of a new message are stored.
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
