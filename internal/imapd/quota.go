// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// quotaRoot is the single quota root (RFC 9208) of a mailbox, for all its folders.
const quotaRoot = ""

// getQuota handles GETQUOTA.
func (s *session) getQuota(cmd *wire.GetQuota) (wire.Code, error) {
	if cmd.Root != quotaRoot {
		return "", no(wire.CodeNonExistent, "There is no such quota root.")
	}
	return "", s.writeQuota()
}

// getQuotaRoot handles GETQUOTAROOT. The folder need not exist (RFC 9208 §4.1.2).
func (s *session) getQuotaRoot(cmd *wire.GetQuotaRoot) (wire.Code, error) {
	s.w.QuotaRoot(cmd.Mailbox, quotaRoot)
	return "", s.writeQuota()
}

// setQuota rejects SETQUOTA: QUOTASET is not announced.
func (s *session) setQuota() (wire.Code, error) {
	return "", no(wire.CodeNoPerm, "The quota is set by the owner of the account.")
}

// writeQuota writes usage and limit of STORAGE in units of 1024 octets, rounded up.
func (s *session) writeQuota() error {
	box, err := s.Mailboxes.ByID(s.ctx(), s.mailboxID)
	if err != nil {
		return err
	}
	s.w.Quota(quotaRoot, wire.QuotaUsage{Resource: "STORAGE", Usage: uint64(max(box.Used, 0)+1023) / 1024, Limit: uint64(box.Quota) / 1024})
	return nil
}
