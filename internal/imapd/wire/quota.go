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

func (r *Reader) getQuota() (Command, error) {
	root, err := r.astring()
	return &GetQuota{root}, err
}

func (r *Reader) getQuotaRoot() (Command, error) {
	name, err := r.mailbox()
	return &GetQuotaRoot{name}, err
}

func (r *Reader) setQuota() (Command, error) {
	var cmd SetQuota
	var err error
	if cmd.Root, err = r.astring(); err != nil {
		return nil, err
	}
	if err = r.sp(); err != nil {
		return nil, err
	}
	err = r.list(maxListItems, func() error {
		name := string(r.word())
		if name == "" {
			return errSyntax
		}
		if err := r.sp(); err != nil {
			return err
		}
		n, err := r.number(math.MaxInt64)
		cmd.Limits = append(cmd.Limits, QuotaLimit{name, n})
		return err
	})
	return &cmd, err
}
