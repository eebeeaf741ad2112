// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/db"
)

type keyAnswer struct {
	ID         db.ID      `json:"id"`
	Name       string     `json:"name"`
	Hint       string     `json:"hint" doc:"How the key begins."`
	Key        string     `json:"key,omitempty" doc:"The key itself; shown in the answer that made it and never again."`
	Scopes     []string   `json:"scopes" nullable:"false"`
	Domain     *string    `json:"domain" doc:"The only domain it may act for; null for all."`
	AllowedIPs []string   `json:"allowed_ips" nullable:"false" doc:"Where it may be used from; empty for everywhere."`
	ExpiresAt  *time.Time `json:"expires_at"`
	LastUsedAt *time.Time `json:"last_used_at"`
	CreatedAt  time.Time  `json:"created_at"`
}

func showKey(k account.Key) keyAnswer {
	out := keyAnswer{
		ID: k.ID, Name: k.Name, Hint: k.Hint, Scopes: k.Scopes, Domain: optional(k.Domain), AllowedIPs: []string{},
		ExpiresAt: optionalTime(k.ExpiresAt), LastUsedAt: optionalTime(k.LastUsedAt), CreatedAt: k.CreatedAt,
	}
	for _, p := range k.Networks {
		out.AllowedIPs = append(out.AllowedIPs, p.String())
	}
	return out
}

// optional shows an empty text as null.
func optional(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// optionalTime shows the zero time as null.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	return &t
}

type createKeyInput struct {
	Body struct {
		Name       string    `json:"name" doc:"What the key is for."`
		Scopes     []string  `json:"scopes,omitempty" doc:"What it may do; everything when left out."`
		Domain     string    `json:"domain,omitempty" doc:"The only domain it may act for."`
		AllowedIPs []string  `json:"allowed_ips,omitempty" doc:"Addresses and networks it may be used from."`
		ExpiresAt  time.Time `json:"expires_at,omitempty"`
	}
}

func (a *API) createKey(ctx context.Context, p account.Principal, in *createKeyInput) (*body[keyAnswer], error) {
	k, token, err := a.Accounts.Delegate(ctx, p, account.NewKey{
		Name: in.Body.Name, Scopes: in.Body.Scopes, Domain: in.Body.Domain, Networks: in.Body.AllowedIPs, ExpiresAt: in.Body.ExpiresAt,
	})
	if err != nil {
		return nil, err
	}
	out := showKey(k)
	out.Key = token
	return &body[keyAnswer]{out}, nil
}

func (a *API) listKeys(ctx context.Context, p account.Principal, in *page) (*list[keyAnswer], error) {
	at, err := in.db()
	if err != nil {
		return nil, err
	}
	keys, more, err := a.Accounts.Keys(ctx, p.Account, at)
	if err != nil {
		return nil, err
	}
	return answer(keys, more, showKey, func(k account.Key) db.ID { return k.ID }), nil
}

func (a *API) deleteKey(ctx context.Context, p account.Principal, in *one) (*empty, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return nil, err
	}
	return &empty{}, a.Accounts.DeleteKey(ctx, p.Account, id)
}
