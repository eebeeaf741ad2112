// SPDX-License-Identifier: Apache-2.0

package inbound

import (
	"context"
	"slices"

	"github.com/mailstead/mailstead/internal/folder"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/outbound"
	"github.com/mailstead/mailstead/internal/thread"
)

// place finds the thread that an arriving message belongs to in the account of
// a recipient, or begins one: the same for all recipients of that account.
func (i *Inbound) place(ctx context.Context, s *spooled, to mailbox.Recipient) (folder.InThread, error) {
	name := s.threads[to.Account]
	if name == "" {
		var err error
		if name, err = i.Threads.Find(ctx, to.Account, 0, s.answers()); err != nil {
			return folder.InThread{}, err
		}
		s.threads[to.Account] = name
	}
	return folder.InThread{Account: to.Account, Domain: to.Domain, Thread: name, Arrival: s.arrival}, nil
}

// answers returns the Message-IDs by which the thread is looked for: first its
// own, as what went out to a list comes back from it. Where a message answers
// nothing, that is worth a look only if the message may be ours.
func (s *spooled) answers() []string {
	ids := thread.Answers(s.header)
	if own := s.header.MessageID(); own != "" && (len(ids) > 0 || outbound.Ours(own)) {
		return slices.Insert(ids, 0, own)
	}
	return ids
}
