// SPDX-License-Identifier: Apache-2.0

package wire

import "math"

// GetQuota is GETQUOTA (RFC 9208).
type GetQuota struct{ Root string }

// GetQuotaRoot is GETQUOTAROOT.
type GetQuotaRoot struct{ Mailbox string }

// SetQuota is SETQUOTA.
type SetQuota struct {
	Root   string
	Limits []QuotaLimit
}

// QuotaLimit is a limit on one resource, in its unit: KiB for STORAGE.
type QuotaLimit struct {
	Resource string // upper case
	Limit    uint64
}

// Name returns the command's name.
func (*GetQuota) Name() string { return "GETQUOTA" }

// Name returns the command's name.
func (*GetQuotaRoot) Name() string { return "GETQUOTAROOT" }

// Name returns the command's name.
func (*SetQuota) Name() string { return "SETQUOTA" }

func (r *Reader) setQuota() Command {
	cmd := SetQuota{Root: r.astring()}
	r.sp()
	r.list(maxListItems, func() {
		name := r.nonEmptyWord()
		r.sp()
		cmd.Limits = append(cmd.Limits, QuotaLimit{name, r.number(math.MaxInt64)})
	})
	return &cmd
}
