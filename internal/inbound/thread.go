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

// findThread finds the thread that an arriving message belongs to in the account of
// a recipient, or begins one: the same for all recipients of that account.
func (i *Service) findThread(ctx context.Context, s *spooledMessage, to mailbox.Recipient) (folder.ThreadRef, error) {
	name := s.threads[to.Account]
	if name == "" {
		var err error
		if name, err = i.Threads.Find(ctx, to.Account, 0, s.threadIDs()); err != nil {
			return folder.ThreadRef{}, err
		}
		s.threads[to.Account] = name
	}
	return folder.ThreadRef{Account: to.Account, Domain: to.Domain, Thread: name, Arrival: s.arrivalID}, nil
}

// threadIDs returns the Message-IDs by which the thread is looked for: first its
// own, as what went out to a list comes back from it. Where a message answers
// nothing, that is worth a look only if the message may be ours.
func (s *spooledMessage) threadIDs() []string {
	ids := thread.RepliedIDs(s.header)
	if own := s.header.MessageID(); own != "" && (len(ids) > 0 || outbound.IsOwnMessageID(own)) {
		return slices.Insert(ids, 0, own)
	}
	return ids
}
