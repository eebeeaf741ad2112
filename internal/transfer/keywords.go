// SPDX-License-Identifier: Apache-2.0

package transfer

import (
	"context"
	"fmt"
	"slices"

	"github.com/mailstead/mailstead/internal/archive"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/folder"
)

const (
	// maxEarly is how many messages may come before what names their keywords.
	maxEarly = 100_000
	// storeAtOnce is how many of them get a keyword at once.
	storeAtOnce = 5000
)

// early is a message that was filed before its keywords had names.
type early struct {
	to       *target
	validity uint32
	uid      uint32
	unnamed  *archive.Unnamed
}

// note remembers those of some messages that were filed.
func (f *filer) note(b *batch, validity uint32, uids []uint32) {
	for i, uid := range uids {
		u := b.items[i].unnamed
		switch {
		case u == nil:
		case len(f.early) == maxEarly:
			f.forgotten++
		default:
			f.early = append(f.early, early{b.to, validity, uid, u})
		}
	}
}

// nameKeywords takes what names keywords of messages that came before. A tar has its
// files in any order.
func (x *importing) nameKeywords(maildir string, words func(u *archive.Unnamed) []string) error {
	if x.named == nil {
		x.named = map[string][]func(u *archive.Unnamed) []string{}
	}
	x.named[maildir] = append(x.named[maildir], words)
	return nil
}

// addKeywords gives messages that are filed the keywords that were named after them.
func (x *importing) addKeywords() error {
	if len(x.named) == 0 {
		return nil
	}
	if n := x.filer.forgotten; n > 0 {
		_ = x.fail("keywords", fmt.Sprintf("%d messages lack keywords, which the archive names only after more than %d messages. Put dovecot-keywords before them.", n, maxEarly))
	}
	// Whoever gives up wants what came.
	ctx := context.WithoutCancel(x.ctx)
	for from := 0; from < len(x.filer.early); {
		first, to := x.filer.early[from], from
		byWord := map[string][]uint32{}
		for ; to < len(x.filer.early) && x.filer.early[to].to == first.to && x.filer.early[to].validity == first.validity && to-from < storeAtOnce; to++ {
			e := x.filer.early[to]
			var words []string
			for _, named := range x.named[e.unnamed.Maildir] {
				words = append(words, named(e.unnamed)...)
			}
			for _, word := range folder.FitKeywords(words) {
				byWord[word] = append(byWord[word], e.uid)
			}
		}
		if err := x.store(ctx, &first, byWord); err != nil {
			return err
		}
		from = to
	}
	return nil
}

// store adds keywords to messages of a folder, if it is still the same.
func (x *importing) store(ctx context.Context, in *early, byWord map[string][]uint32) error {
	v, err := x.Folders.Open(ctx, x.Mailbox, in.to.name, true)
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
		_, _, err := v.Store(ctx, uids, folder.StoreFlags{Op: folder.Add, Keywords: []string{word}})
		switch {
		case fault.Is(err, fault.Invalid), fault.Is(err, fault.Limited): // too many keywords
			_ = x.fail("keywords", fmt.Sprintf("Messages of the folder %s lack the keyword %s: there are too many of them.", in.to.name, word))
		case err != nil:
			return err
		}
	}
	return nil
}
