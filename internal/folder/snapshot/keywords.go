// SPDX-License-Identifier: Apache-2.0

package snapshot

import (
	"math"
	"slices"
	"strings"
	"sync"

	"github.com/mailstead/mailstead/internal/fault"
)

// KeywordTable numbers the keyword sets of a folder's messages. A keyword keeps the spelling that
// was seen first. Sets are never removed: a table lives as long as its view.
type KeywordTable struct {
	mu       sync.RWMutex
	ids      map[string]uint32
	sets     [][]string        // sorted; 0 is the empty set
	texts    []string          // as they are stored
	bytes    int               // memory of all sets, approximately
	newBytes int               // memory of the sets that Add and Remove created
	full     bool              // whether messages have sets that the table did not accept
	spelling map[string]string // by lower case
}

// Limits of keywords.
const (
	MaxKeywords     = 64  // of one message
	maxKeywordBytes = 100 // of one keyword
)

// maxNewKeywordBytes limits, in bytes, the memory of sets that Add and Remove create. It is not
// freed while a session is open, even if no message has the sets any more.
const maxNewKeywordBytes = 8 << 20

// maxKeywordTableBytes limits, in bytes, the memory of all sets, since no quota counts the keywords
// of messages that clients append. The keywords of messages with further sets are read whenever
// they are reported (View.FillKeywords), and can only be replaced as a whole.
const maxKeywordTableBytes = 32 << 20

// OverflowKeywords represents the sets that the table did not accept.
const OverflowKeywords = math.MaxUint32

// keywordSetBytes returns approximately how many bytes of memory a set takes. Short words take more
// than their letters.
func keywordSetBytes(text string) int {
	return 96 + len(text) + 16*(1+strings.Count(text, " "))
}

// NewKeywordTable returns a table with only the empty set.
func NewKeywordTable() *KeywordTable {
	return &KeywordTable{ids: map[string]uint32{"": 0}, sets: [][]string{nil}, texts: []string{""}, spelling: map[string]string{}}
}

// ID returns the number of a set in its stored form, or OverflowKeywords if the table is full.
func (t *KeywordTable) ID(text string) uint32 {
	if text == "" {
		return 0
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if _, known := t.ids[text]; !known && t.bytes+keywordSetBytes(text) > maxKeywordTableBytes {
		t.full = true
		return OverflowKeywords
	}
	return t.idLocked(text)
}

// IsFull reports whether messages may have sets that the table lacks.
func (t *KeywordTable) IsFull() bool {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.full
}

func (t *KeywordTable) idLocked(text string) uint32 {
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

// Keywords returns the keywords of a set; nil for OverflowKeywords.
func (t *KeywordTable) Keywords(id uint32) []string {
	if id == 0 || id == OverflowKeywords {
		return nil
	}
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.sets[id]
}

// FormatSet returns a set in its stored form.
func (t *KeywordTable) FormatSet(id uint32) string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.texts[id]
}

// All returns every keyword, sorted.
func (t *KeywordTable) All() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	words := make([]string, 0, len(t.spelling))
	for _, word := range t.spelling {
		words = append(words, word)
	}
	slices.Sort(words)
	return words
}

// Count returns the number of keywords that All returns.
func (t *KeywordTable) Count() int {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return len(t.spelling)
}

// SetsWith returns the sets that contain a keyword, in any case.
func (t *KeywordTable) SetsWith(word string) map[uint32]bool {
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

// AddToSet returns the set that results from adding words to another set.
func (t *KeywordTable) AddToSet(from uint32, words []string) (uint32, error) {
	return t.changeSet(from, words, false)
}

// RemoveFromSet returns the set that results from removing words from another set.
func (t *KeywordTable) RemoveFromSet(from uint32, words []string) (uint32, error) {
	return t.changeSet(from, words, true)
}

func (t *KeywordTable) changeSet(from uint32, words []string, remove bool) (uint32, error) {
	if len(words) == 0 {
		return from, nil
	}
	if from == OverflowKeywords {
		return 0, keywordTableFullError()
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	set := slices.Clone(t.sets[from])
	for _, word := range words {
		same := func(w string) bool { return strings.EqualFold(w, word) }
		switch {
		case remove:
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

// MemoryBytes returns approximately how many bytes of memory the table takes.
func (t *KeywordTable) MemoryBytes() int {
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

// CheckKeywords returns a fault for an invalid keyword (RFC 3501 §9, flag-keyword).
func CheckKeywords(words []string) error {
	if len(words) > MaxKeywords {
		return tooManyKeywordsError()
	}
	for _, word := range words {
		bad := func(r rune) bool { return r <= ' ' || r >= 0x7f || strings.ContainsRune(`(){%*"\]`, r) }
		if word == "" || len(word) > maxKeywordBytes || strings.ContainsFunc(word, bad) {
			return fault.New(fault.Invalid, "bad_keyword", "A keyword has 1 to %d ASCII letters, digits and signs.", maxKeywordBytes)
		}
	}
	return nil
}

// FormatKeywords returns the keywords of a new message in their stored form.
func FormatKeywords(words []string) (string, error) {
	if len(words) == 0 {
		return "", nil
	}
	if err := CheckKeywords(words); err != nil {
		return "", err
	}
	set := slices.Clone(words)
	slices.SortFunc(set, func(a, b string) int { return strings.Compare(strings.ToLower(a), strings.ToLower(b)) })
	set = slices.CompactFunc(set, strings.EqualFold)
	slices.Sort(set)
	return strings.Join(set, " "), nil
}
