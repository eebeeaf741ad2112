// SPDX-License-Identifier: Apache-2.0

package clienttest

import (
	"time"

	"github.com/mailstead/mailstead/client"
	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
)

// limits checks a customer's limits.
func (h *fixture) limits() {
	h.Helper()
	l, err := h.c.GetLimits(h.Context())
	if err != nil || *l.Requests.PerSecond != 2000 || *l.Requests.Burst != 20000 || *l.SendsPerHour.Limit != 1_000_000 || l.SendsPerHour.Used == 0 ||
		*l.SendsPerHour.Remaining != 1_000_000-l.SendsPerHour.Used || l.RecipientsPerDay.Used < l.SendsPerDay.Used || !l.SendsPerDay.ResetsAt.After(time.Now()) ||
		l.Storage.Allotted < 2<<30 || *l.Storage.Limit != 10<<40 || l.APIKey != nil {
		h.Errorf("%+v, %v", l, err)
	}
	k, err := h.c.CreateAPIKey(h.Context(), client.NewAPIKey{Name: "limited", Limits: &client.KeyLimits{SendsPerDay: new(int64(7))}})
	h.want("a key with limits", err)
	if k.Limits == nil || *k.Limits.SendsPerDay != 7 || k.Limits.SendsPerHour != nil {
		h.Errorf("the key is %+v", k)
	}
	_, err = h.c.CreateAPIKey(h.Context(), client.NewAPIKey{Name: "unlimited", Limits: &client.KeyLimits{SendsPerDay: new(int64(1 << 40))}})
	refused(h, "limits above the account's", err, 422, "validation_failed", "limits.sends_per_day over_account")
	_, err = h.c.CreateAPIKey(h.Context(), client.NewAPIKey{Name: "none", Limits: &client.KeyLimits{Burst: new(int64(0))}})
	refused(h, "no burst", err, 422, "validation_failed", "limits.burst out_of_range")
	c, err := client.New(h.s.Dev.BaseURL, k.Key)
	h.want("a client", err)
	if l, err = c.GetLimits(h.Context()); err != nil || l.APIKey == nil || l.APIKey.ID != k.ID || *l.APIKey.SendsPerDay.Limit != 7 || l.APIKey.SendsPerDay.Used != 0 || l.APIKey.Requests != nil {
		h.Errorf("the key's are %+v, %v", l, err)
	}
}

// accountLimits sets a customer's limits, as an operator.
func (h *fixture) accountLimits(c *client.Client, account string) {
	h.Helper()
	ctx := h.Context()
	got, err := c.SetAccountLimits(ctx, account, client.LimitSet{SendsPerHour: new(int64(900_000)), StorageMB: new(int64(0))})
	if err != nil || got.AccountID != account || *got.Set.SendsPerHour != 900_000 || *got.Set.StorageMB != 0 || got.Set.SendsPerDay != nil || *got.Limits.SendsPerDay != 10_000_000 {
		h.Errorf("set %+v, %v", got, err)
	}
	if l, err := h.c.GetLimits(ctx); err != nil || *l.SendsPerHour.Limit != 900_000 || l.Storage.Limit != nil {
		h.Errorf("the customer sees %+v, %v", l, err)
	}
	_, err = c.SetAccountLimits(ctx, account, client.LimitSet{})
	h.want("setting none", err)
	if got, err = c.GetAccountLimits(ctx, account); err != nil || got.Set != (client.LimitSet{}) || *got.Limits.SendsPerHour != 1_000_000 {
		h.Errorf("shown %+v, %v", got, err)
	}
	_, err = c.SetAccountLimits(ctx, account, client.LimitSet{Burst: new(int64(-1))})
	refused(h, "a limit below nothing", err, 422, "validation_failed", "burst out_of_range")
	_, err = c.GetAccountLimits(ctx, nobody)
	refused(h, "nobody", err, 404, "not_found")
	_, err = h.c.GetAccountLimits(ctx, account)
	refused(h, "a customer", err, 403, "missing_scope")
}

// accounts creates and suspends customers, as an operator.
func (h *fixture) accounts(c *client.Client) {
	h.Helper()
	ctx := h.Context()
	made, err := c.CreateAccount(ctx, "Suspended@Customer.example", "Suspended")
	if err != nil || made.Email != "suspended@customer.example" || made.Status != "active" {
		h.Fatalf("made %+v, %v", made, err)
	}
	_, err = c.CreateAccount(ctx, "nobody", "")
	refused(h, "no address", err, 422, "validation_failed", "email invalid_address")
	found := 0
	for a, err := range c.Accounts(ctx) {
		h.want("the list", err)
		if a.ID == made.ID {
			found++
		}
	}
	if found != 1 {
		h.Errorf("the list has it %d times", found)
	}
	id, err := db.ParseID(made.ID)
	h.want("its id", err)
	_, token, err := h.s.Accounts.CreateKey(ctx, id, account.KeyParams{Name: "its own"})
	h.want("its key", err)
	theirs, err := client.New(h.s.Dev.BaseURL, token)
	h.want("its client", err)
	_, err = theirs.GetLimits(ctx)
	h.want("using it", err)
	if got, err := c.UpdateAccount(ctx, made.ID, "suspended"); err != nil || got.Status != "suspended" {
		h.Errorf("suspended %+v, %v", got, err)
	}
	_, err = theirs.GetLimits(ctx)
	refused(h, "a suspended account's key", err, 403, "account_suspended")
	if got, err := c.GetAccount(ctx, made.ID); err != nil || got.Status != "suspended" {
		h.Errorf("shown %+v, %v", got, err)
	}
	if got, err := c.UpdateAccount(ctx, made.ID, "active"); err != nil || got.Status != "active" {
		h.Errorf("resumed %+v, %v", got, err)
	}
	_, err = theirs.GetLimits(ctx)
	h.want("using it again", err)
	_, err = c.GetAccount(ctx, nobody)
	refused(h, "nobody", err, 404, "not_found")

	for _, suspended := range []bool{true, false} {
		if d, err := c.SuspendDomain(ctx, "demo.test", suspended); err != nil || d.Name != "demo.test" || d.Suspended != suspended || d.AccountID == nil {
			h.Errorf("suspended is to be %t: %+v, %v", suspended, d, err)
		}
		if d, err := c.GetOperatorDomain(ctx, "demo.test"); err != nil || d.Suspended != suspended {
			h.Errorf("suspended is to be %t, shown %+v, %v", suspended, d, err)
		}
	}
	_, err = c.GetOperatorDomain(ctx, "nowhere.test")
	refused(h, "a domain that is not here", err, 404, "not_found")
}
