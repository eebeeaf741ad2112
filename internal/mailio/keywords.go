// SPDX-License-Identifier: Apache-2.0

package mailio

import (
	"context"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailfile"
)

const (
	// maxPending is the maximum number of messages before the names of their keywords.
	maxPending = 100_000
	// keywordBatch is the number of messages that get a keyword at once.
	keywordBatch = 5000
)

// messageAwaitingKeywords is a message filed before the names of its keywords were known.
type messageAwaitingKeywords struct {
	target   *targetFolder
	validity uint32
	uid      uint32
	keywords *mailfile.PendingKeywords
}

// addAwaitingKeywords remembers the filed messages with pending keywords.
func (f *appender) addAwaitingKeywords(b *batch, validity uint32, uids []uint32) {
	for i, uid := range uids {
		u := b.items[i].pendingKeywords
		switch {
		case u == nil:
		case len(f.pendingMessages) == maxPending:
			f.droppedPending++
		default:
			f.pendingMessages = append(f.pendingMessages, messageAwaitingKeywords{b.target, validity, uid, u})
		}
	}
}

// addKeywordNames receives the names of earlier messages' keywords: the files of a tar are in any
// order.
func (x *importer) addKeywordNames(maildir string, words func(u *mailfile.PendingKeywords) []string) error {
	if x.keywordNames == nil {
		x.keywordNames = map[string][]func(u *mailfile.PendingKeywords) []string{}
	}
	x.keywordNames[maildir] = append(x.keywordNames[maildir], words)
	return nil
}

// storeKeywords adds the keywords to filed messages whose names came later.
func (x *importer) storeKeywords() error {
	if len(x.keywordNames) == 0 {
		return nil
	}
	if n := x.appender.droppedPending; n > 0 {
		_ = x.addFailure("keywords", fmt.Sprintf("%d messages lack keywords, which the archive names only after more than %d messages. Put dovecot-keywords before them.", n, maxPending))
	}
	// A client that cancels expects what was read.
	ctx := context.WithoutCancel(x.ctx)
	for from := 0; from < len(x.appender.pendingMessages); {
		first, to := x.appender.pendingMessages[from], from
		byWord := map[string][]uint32{}
		for ; to < len(x.appender.pendingMessages) && x.appender.pendingMessages[to].target == first.target && x.appender.pendingMessages[to].validity == first.validity && to-from < keywordBatch; to++ {
			e := x.appender.pendingMessages[to]
			var words []string
			for _, named := range x.keywordNames[e.keywords.Maildir] {
				words = append(words, named(e.keywords)...)
			}
			for _, word := range folder.SanitizeKeywords(words) {
				byWord[word] = append(byWord[word], e.uid)
			}
		}
		if err := x.storeKeywordsInFolder(ctx, &first, byWord); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// storeKeywordsInFolder adds keywords to messages of a folder, unless it was replaced.
func (x *importer) storeKeywordsInFolder(ctx context.Context, in *messageAwaitingKeywords, byWord map[string][]uint32) error {
	v, err := x.Folders.Open(ctx, x.Mailbox, in.target.name, true)
	if fault.Is(err, fault.NotFound) {
		return nil
	}
	if err != nil {
		return err
	}
	defer v.Close()
	if v.Folder().UIDValidity != in.validity {
		return nil
	}
	for word, uids := range byWord {
		slices.Sort(uids)
		_, _, err := v.UpdateFlags(ctx, uids, folder.FlagUpdate{Op: folder.AddFlags, Keywords: []string{word}})
		switch {
		case fault.Is(err, fault.Invalid), fault.Is(err, fault.RateLimited): // too many keywords
			_ = x.addFailure("keywords", fmt.Sprintf("Messages of the folder %s lack the keyword %s: there are too many of them.", in.target.name, word))
		case err != nil:
			return err
		}
	}
	return nil
}
