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

// findThread returns the thread of a received message in a recipient's account, or creates one. All
// recipients of that account share it.
func (i *Service) findThread(ctx context.Context, s *spooledMessage, to mailbox.Recipient) (folder.ThreadRef, error) {
	name := s.threads[to.Account]
	if name == "" {
		var err error
		if name, err = i.Threads.FindOrStart(ctx, to.Account, 0, s.threadIDs()); err != nil {
			return folder.ThreadRef{}, err
		}
		s.threads[to.Account] = name
	}
	return folder.ThreadRef{Account: to.Account, Domain: to.Domain, Thread: name, Arrival: s.arrivalID}, nil
}

// threadIDs returns the Message-IDs to search threads by: first the message's own, since mail sent
// to a list comes back from it. For a message without references, the own ID counts only if it may
// be ours.
func (s *spooledMessage) threadIDs() []string {
	ids := thread.RepliedIDs(s.header)
	if own := s.header.MessageID(); own != "" && (len(ids) > 0 || outbound.IsOwnMessageID(own)) {
		return slices.Insert(ids, 0, own)
	}
	return ids
}
