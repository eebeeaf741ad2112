// SPDX-License-Identifier: Apache-2.0

package api

import (
	"context"
	"net/netip"
	"slices"
	"time"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/apijson"
	"github.com/mailstead/mailstead/internal/db"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/quota"
)

type keyResponse struct {
	ID         db.ID              `json:"id" doc:"The key's id."`
	Name       string             `json:"name" doc:"What the key is for." example:"shop"`
	Hint       string             `json:"hint" doc:"How the key begins." example:"ms_4fK2xa"`
	Key        apijson.NullString `json:"key" doc:"The key itself; shown only in the response that created it; else null."`
	Scopes     []string           `json:"scopes" doc:"What it may do; * is everything." example:"outbound.send"`
	Domain     *string            `json:"domain" doc:"The only domain it may act for; null for all." example:"example.com"`
	AllowedIPs []string           `json:"allowed_ips" doc:"Where it may be used from; empty for everywhere." example:"192.0.2.0/24"`
	Limits     *keyLimitsResponse `json:"limits" doc:"Limits of its own, which hold beside those of the account; null for none."`
	ExpiresAt  *time.Time         `json:"expires_at" doc:"When it stops working; null for never."`
	LastUsedAt *time.Time         `json:"last_used_at" doc:"When it was last used, to the minute; null for never."`
	ExposedAt  *time.Time         `json:"exposed_at" doc:"When it was last sent to the service without TLS, where others may have read it: replace it then. Null for never."`
	CreatedAt  time.Time          `json:"created_at" doc:"When it was made."`
}

func newKeyResponse(k account.Key) keyResponse {
	return keyResponse{
		ID: k.ID, Name: k.Name, Hint: k.Hint, Scopes: append([]string{}, k.Scopes...), Domain: optionalString(k.Domain),
		AllowedIPs: networkStrings(k), Limits: newKeyLimitsResponse(k.Limits), ExpiresAt: optionalTime(k.ExpiresAt), LastUsedAt: optionalTime(k.LastUsedAt),
		ExposedAt: optionalTime(k.ExposedAt), CreatedAt: utcTime(k.CreatedAt),
	}
}

func networkStrings(k account.Key) []string {
	all := []string{}
	for _, p := range k.Networks {
		all = append(all, p.String())
	}
	return all
}

// optionalString converts an empty string to null.
func optionalString(s string) *string {
	if s == "" {
		return nil
	}
	return &s
}

// utcTime converts a time to UTC, with the precision of responses.
func utcTime(t time.Time) time.Time { return t.UTC().Truncate(time.Millisecond) }

// optionalTime converts the zero time to null.
func optionalTime(t time.Time) *time.Time {
	if t.IsZero() {
		return nil
	}
	t = utcTime(t)
	return &t
}

type createKeyRequest struct {
	Name       string            `json:"name" doc:"What the key is for: 1 to 100 bytes." example:"shop"`
	Scopes     []string          `json:"scopes,omitempty" doc:"What it may do: RESOURCE.read, RESOURCE.write, or outbound.send; as much as the key that makes it when left out." example:"outbound.send, messages.read"`
	Domain     string            `json:"domain,omitempty" doc:"The only domain it may act for." example:"example.com"`
	AllowedIPs []string          `json:"allowed_ips,omitempty" doc:"Addresses and networks it may be used from." example:"192.0.2.0/24"`
	Limits     *keyLimitsRequest `json:"limits,omitempty" doc:"Limits of its own, none higher than the account's; those of the key that makes it when left out."`
	ExpiresAt  *time.Time        `json:"expires_at,omitempty" doc:"When it stops working; never when left out."`
}

type createKeyInput struct{ Body createKeyRequest }

func (a *API) createAPIKey(ctx context.Context, p account.Principal, in *createKeyInput) (keyResponse, error) {
	if in.Body.Scopes != nil && len(in.Body.Scopes) == 0 {
		var bad fault.FieldErrors
		bad.Add("scopes", "required", "Give at least one scope; leave the field out for all that this key has.")
		return keyResponse{}, bad.Err()
	}
	n := account.KeyParams{Name: in.Body.Name, Scopes: in.Body.Scopes, Domain: in.Body.Domain, Networks: in.Body.AllowedIPs, Limits: in.Body.Limits.accountRates()}
	if in.Body.ExpiresAt != nil {
		n.ExpiresAt = *in.Body.ExpiresAt
	}
	maker, err := a.apiKey(ctx, p, p.Key)
	if err != nil {
		return keyResponse{}, err
	}
	if err := constrainNewKey(maker, &n); err != nil {
		return keyResponse{}, err
	}
	set, err := a.Limits.AccountLimits(ctx, p.Account)
	if err != nil {
		return keyResponse{}, err
	}
	if err := quota.CheckKeyRates(quota.Rates(n.Limits), set.Rates); err != nil {
		return keyResponse{}, err
	}
	k, token, err := a.Accounts.DelegateKey(ctx, p, n)
	if err != nil {
		return keyResponse{}, err
	}
	out := newKeyResponse(k)
	out.Key = apijson.NullString(token)
	return out, nil
}

// constrainNewKey limits a new key to the lifetime and the networks of the key that creates it. The
// new key inherits these if it has none of its own.
func constrainNewKey(maker account.Key, n *account.KeyParams) error {
	if end := maker.ExpiresAt; !end.IsZero() {
		if n.ExpiresAt.IsZero() {
			n.ExpiresAt = end
		} else if n.ExpiresAt.After(end) {
			return fault.New(fault.Denied, "expiry_exceeded", "This API key can't make one that outlives it.")
		}
	}
	if len(maker.Networks) == 0 {
		return nil
	}
	if len(n.Networks) == 0 {
		n.Networks = networkStrings(maker)
	}
	for _, text := range n.Networks {
		inner, err := netip.ParsePrefix(text)
		if addr, notPrefix := netip.ParseAddr(text); notPrefix == nil {
			inner, err = netip.PrefixFrom(addr.Unmap(), addr.Unmap().BitLen()), nil
		}
		if err == nil && !containsNetwork(maker.Networks, inner) {
			return fault.New(fault.Denied, "networks_exceeded", "This API key can make keys for its own networks only.")
		}
	}
	return nil
}

func containsNetwork(outer []netip.Prefix, inner netip.Prefix) bool {
	for _, p := range outer {
		if p.Bits() <= inner.Bits() && p.Contains(inner.Addr()) {
			return true
		}
	}
	return false
}

func (a *API) listAPIKeys(ctx context.Context, p account.Principal, in *pageParams) (listResponse[keyResponse], error) {
	read := func(at db.Page) ([]account.Key, bool, error) { return a.Accounts.Keys(ctx, p.Account, at) }
	out, err := listPage(in, read, newKeyResponse, func(k account.Key) db.ID { return k.ID })
	if p.Domain != "" {
		out.Data = slices.DeleteFunc(out.Data, func(k keyResponse) bool { return k.Domain == nil || *k.Domain != p.Domain })
	}
	return out, err
}

func (a *API) deleteAPIKey(ctx context.Context, p account.Principal, in *idParams) (emptyResponse, error) {
	id, err := db.ParseID(in.ID)
	if err != nil {
		return emptyResponse{}, err
	}
	if _, err := a.apiKey(ctx, p, id); err != nil {
		return emptyResponse{}, err
	}
	return emptyResponse{}, a.Accounts.DeleteKey(ctx, p.Account, id)
}
