// SPDX-License-Identifier: Apache-2.0

package domain

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/mailstead/mailstead/internal/dns"
)

// contest is for how long another account's OWNERSHIP record must have been
// seen without the holder's, until the name changes hands.
const contest = 24 * time.Hour

// tokensIn reads the tokens from the TXT records at _mailstead.<domain>. Some
// providers keep quotation marks that were typed in, so they are forgiven.
func tokensIn(txts []string) map[string]bool {
	tokens := map[string]bool{}
	for _, txt := range txts[:min(len(txts), maxPolicies)] {
		txt = strings.Trim(txt, " \t\"")
		if len(txt) > len(ownershipPrefix) && len(txt) <= maxValue && strings.EqualFold(txt[:len(ownershipPrefix)], ownershipPrefix) {
			tokens[strings.ToLower(strings.TrimSpace(txt[len(ownershipPrefix):]))] = true
		}
	}
	return tokens
}

// lookOwnership asks for the OWNERSHIP records. Its verdict is about the
// claim's own token; who holds the name is decided by settle.
func lookOwnership(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record) (verdict, map[string]bool) {
	res, err := resolver.TXT(ctx, r.Name)
	var tokens map[string]bool
	v := orMissing(ctx, resolver, c, r, err, func() verdict {
		tokens = tokensIn(res.Records)
		switch {
		case tokens[c.token]:
			return verdict{RecordVerified, res.Records, ""}
		case len(tokens) > 0:
			return failed(res.Records, "The record at %s has another value. Add one with the value shown.", r.Name)
		}
		return failed(res.Records, "The TXT record at %s is not ours. Add one with the value shown.", r.Name)
	})
	if tokens == nil && v.status != TemporaryFailure {
		tokens = map[string]bool{}
	}
	return v, tokens
}

// changeHands applies what the OWNERSHIP records say to all claims on a name,
// whose rows are locked. me is the claim that was looked at. A name that is suspended
// stays with who holds it: else another account would end the suspension.
func changeHands(claims []*claim, me *claim, tokens map[string]bool, at time.Time) {
	if slices.ContainsFunc(claims, (*claim).suspended) {
		return
	}
	var holder *claim
	rival := false
	for _, c := range claims {
		if c.held {
			holder = c
		} else if tokens[c.token] {
			rival = true
		}
	}
	proven := tokens[me.token]
	switch {
	case holder == nil:
		if proven {
			me.take()
		}
	case tokens[holder.token] || !rival:
		holder.contestedSince = time.Time{}
	case holder.contestedSince.IsZero():
		holder.contestedSince, holder.nextCheckAt = at, at // so that its account is told soon
	case holder != me && proven && at.Sub(holder.contestedSince) >= contest:
		holder.lose()
		holder.nextCheckAt = at
		me.take()
	}
}

func (c *claim) take() {
	c.held = true
	if c.status == Failed {
		c.status = Pending
	}
}

// lose leaves the former holder its mail and nothing else.
func (c *claim) lose() {
	c.held, c.receives, c.sends, c.aligned = false, false, false, false
	c.contestedSince, c.mismatchSince = time.Time{}, time.Time{}
	c.status = Failed
}

// explainOwnership puts into words what the OWNERSHIP record means for a
// claim, now that it is known who holds the name.
func explainOwnership(claims []*claim, me *claim, s sighting, tokens map[string]bool) sighting {
	if tokens == nil {
		return s
	}
	var holder *claim
	for _, c := range claims {
		if c.held {
			holder = c
		}
	}
	switch {
	case me.held && tokens[me.token]:
	case me.held && me.contestedSince.IsZero():
		s.Status = RecordVerified
		s.Error = "The record is gone. You still hold the domain, but put the record back: without it another account that publishes its own takes the domain over."
	case me.held:
		s.Status = RecordFailed
		s.Error = fmt.Sprintf("Your record is gone, and another account's is there. Put yours back before %s, or that account takes the domain over.",
			me.contestedSince.Add(contest).Format(timeForm))
	case tokens[me.token] && holder != nil && tokens[holder.token]:
		s.Status = RecordFailed
		s.Error = "Your record is there, but another account here holds the domain and its record is there too. Remove the other " + ownershipPrefix + "… record; a day later the domain is yours."
	case tokens[me.token] && holder != nil:
		s.Status = RecordFailed
		s.Error = fmt.Sprintf("Your record is there, but another account here held the domain until now. If its record stays away, the domain is yours from %s.",
			holder.contestedSince.Add(contest).Format(timeForm))
	}
	return s
}
