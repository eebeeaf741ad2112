// SPDX-License-Identifier: Apache-2.0

package index

import (
	"encoding/json"
	"hash/fnv"
	"maps"
	"slices"
	"strings"
	"unicode"

	"golang.org/x/text/cases"
	"golang.org/x/text/unicode/norm"

	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/message"
)

// Limits on the terms of a message.
const (
	maxSubjectWords = 32 // distinct words, the first ones of the subject
	maxMetadataKeys = 32 // metadata keys, the first in alphabetical order
	maxSenderTerms  = 5
)

// A term is something that a message is found by: its kind, then the text. Different terms may have
// the same hash, so the search compares the terms of the messages that it finds.
const (
	termRecipient       = "recipient " // a folded address
	termRecipientDomain = "to-domain "
	termSender          = "sender "
	termSenderDomain    = "from-domain "
	termSubjectWord     = "word "
	termMetadataKey     = "key "
	termMetadataValue   = "value " // key, NUL, value
	termMailbox         = "mailbox "
	termTag             = "tag "
)

// hashTerm returns a term as it is stored in the database.
func hashTerm(term string) int64 {
	h := fnv.New64a()
	_, _ = h.Write([]byte(term)) // writing to a hash never fails
	return int64(h.Sum64())
}

// messageTerms returns the distinct terms of a message. The domain is also a term, stored as its
// id.
func messageTerms(m Message) map[string]bool {
	all := map[string]bool{}
	add := func(kind, domainKind, text string) {
		if a, err := address.Parse(text); err == nil {
			all[kind+a.Key()], all[domainKind+a.Domain] = true, true
		}
	}
	for _, d := range m.Deliveries {
		add(termRecipient, termRecipientDomain, d.Recipient)
	}
	authors := message.Header("From: " + m.From + "\r\n").Addresses("From")
	for _, a := range authors[:min(len(authors), maxSenderTerms)] {
		add(termSender, termSenderDomain, a.Local+"@"+a.Domain)
	}
	for _, w := range splitWords(m.Subject) {
		all[termSubjectWord+w] = true
	}
	if m.Mailbox != 0 {
		all[termMailbox+m.Mailbox.String()] = true
	}
	for _, t := range m.Tags {
		all[termTag+t] = true
	}
	addMetadataTerms(all, string(m.Metadata))
	return all
}

func addMetadataTerms(all map[string]bool, metadata string) {
	var object map[string]json.RawMessage
	if metadata == "{}" || json.Unmarshal([]byte(metadata), &object) != nil {
		return
	}
	keys := slices.Sorted(maps.Keys(object))
	for _, key := range keys[:min(len(keys), maxMetadataKeys)] {
		all[termMetadataKey+key] = true
		value := string(object[key])
		switch value[0] {
		case '{', '[':
			continue
		case '"':
			if json.Unmarshal(object[key], &value) != nil {
				continue
			}
		}
		all[termMetadataValue+key+"\x00"+value] = true
	}
}

// splitWords returns the distinct words of a text, folded: runs of letters and digits. In scripts
// written without spaces each character is a word.
func splitWords(text string) []string {
	var list []string
	var word strings.Builder
	end := func() {
		if w := word.String(); w != "" && !slices.Contains(list, w) {
			list = append(list, w)
		}
		word.Reset()
	}
	for _, c := range cases.Fold().String(norm.NFKC.String(text)) {
		switch {
		case len(list) == maxSubjectWords:
			return list
		case unicode.In(c, unicode.Han, unicode.Hiragana, unicode.Katakana, unicode.Thai, unicode.Lao, unicode.Khmer, unicode.Myanmar):
			end()
			word.WriteRune(c)
			end()
		case unicode.IsLetter(c) || unicode.IsDigit(c) || unicode.IsMark(c):
			word.WriteRune(c)
		default:
			end()
		}
	}
	if len(list) < maxSubjectWords {
		end()
	}
	return list
}

// Terms are the terms of a message as stored in the database.
type Terms []int64

// TermsOf returns the terms of a message with its deliveries.
func TermsOf(m Message) Terms {
	list := Terms{int64(m.Domain)}
	for t := range messageTerms(m) {
		list = append(list, hashTerm(t))
	}
	return list
}

var deleteTermsQuery = db.SQL(`DELETE FROM outbound_term WHERE account = $1 AND message = $2 AND term IN (
		$3, $4, $5, $6, $7, $8, $9, $10, $11, $12, $13, $14, $15, $16, $17, $18, $19, $20, $21, $22,
		$23, $24, $25, $26, $27, $28, $29, $30, $31, $32, $33, $34, $35, $36, $37, $38, $39, $40, $41, $42)`)

// termsPerDelete is how many terms deleteTermsQuery takes.
const termsPerDelete = 40

// Delete deletes the terms of a message in the caller's commit.
func (t Terms) Delete(b *db.Batch, account, message db.ID) {
	for some := range slices.Chunk(t, termsPerDelete) {
		args := []any{account, message}
		for i := range termsPerDelete { // the arguments repeat the last term
			args = append(args, some[min(i, len(some)-1)])
		}
		b.Queue(deleteTermsQuery.With(args...))
	}
}

// posting is a row of outbound_term.
type posting struct {
	account db.ID
	term    int64
	message db.ID
}
