// SPDX-License-Identifier: Apache-2.0

package dashboard

import (
	"time"

	"github.com/mailstead/mailstead/internal/quota"
)

// quotaUsage is the usage of a limited resource.
type quotaUsage struct {
	Name        string
	Used, Limit int64 // Limit is 0 for no limit
	Resets      time.Time
}

// Left returns how much of a limit is left.
func (u quotaUsage) Left() int64 { return max(0, u.Limit-u.Used) }

func (d *Dashboard) limits(v *requestContext) (page, error) {
	set, err := d.Limits.AccountLimits(v.ctx, v.session.Account)
	if err != nil {
		return page{}, err
	}
	usage, err := d.Limits.Usage(v.ctx, quota.Consumer{Account: v.session.Account})
	if err != nil {
		return page{}, err
	}
	s := struct {
		Sends            []quotaUsage
		Allotted, Held   quotaUsage
		PerSecond, Burst int64
	}{PerSecond: set.RequestsPerSecond, Burst: set.Burst}
	names := map[string]string{"sends_per_hour": "Messages in this hour", "sends_per_day": "Messages today", "recipients_per_day": "Recipients today"}
	for _, u := range usage {
		s.Sends = append(s.Sends, quotaUsage{names[u.Name], u.Used, u.Limit, u.ResetsAt})
	}
	allotted, held, err := d.Mailboxes.StorageUsage(v.ctx, v.session.Account)
	s.Allotted = quotaUsage{Name: "Allotted to mailboxes", Used: allotted, Limit: set.StorageMB << 20}
	s.Held = quotaUsage{Name: "Held by mailboxes", Used: held, Limit: allotted}
	return page{Template: "limits", Title: "Limits", Section: "limits", Data: s}, err
}
