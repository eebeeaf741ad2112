// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/db"

// BodySearches returns how many searches of a mailbox read bodies or wait to do so. It also returns
// that number for its account, without those that wait for their mailbox.
func (s *Server) BodySearches(account, mailbox db.ID) (ofMailbox, ofAccount int) {
	return s.bodySearches.mailboxes.Count(mailbox), s.bodySearches.accounts.Count(account)
}
