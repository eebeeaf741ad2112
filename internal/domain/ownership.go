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

// contestPeriod is how long another account's OWNERSHIP record must have been seen without the
// owner's before the name changes hands.
const contestPeriod = 24 * time.Hour

// ownershipTokens reads the tokens from the TXT records at _mailstead.<domain>. It accepts
// surrounding quotation marks, because some providers store those that were typed in.
func ownershipTokens(txts []string) map[string]bool {
	tokens := map[string]bool{}
	for _, txt := range txts[:min(len(txts), maxTXTRecords)] {
		txt = strings.Trim(txt, " \t\"")
		if len(txt) > len(ownershipPrefix) && len(txt) <= maxObservedValue && strings.EqualFold(txt[:len(ownershipPrefix)], ownershipPrefix) {
			tokens[strings.ToLower(strings.TrimSpace(txt[len(ownershipPrefix):]))] = true
		}
	}
	return tokens
}

// checkOwnership queries the OWNERSHIP records. Its result is about the claim's own token;
// transferOwnership decides who owns the name.
func checkOwnership(ctx context.Context, resolver *dns.Resolver, c *claim, r *Record) (recordResult, map[string]bool) {
	res, err := resolver.TXT(ctx, r.Name)
	var tokens map[string]bool
	v := resultOrMissing(ctx, resolver, c, r, err, func() recordResult {
		tokens = ownershipTokens(res.Records)
		switch {
		case tokens[c.token]:
			return verifiedResult(res.Records)
		case len(tokens) > 0:
			return failedResult(res.Records, "The record at %s has another value. Add one with the value shown.", r.Name)
		}
		return failedResult(res.Records, "The TXT record at %s is not ours. Add one with the value shown.", r.Name)
	})
	if tokens == nil && v.status != RecordTemporaryFailure {
		tokens = map[string]bool{}
	}
	return v, tokens
}

// transferOwnership applies the OWNERSHIP records to all claims on a name, whose rows are locked.
// me is the claim that was checked. A suspended name keeps its owner; otherwise another account
// could end the suspension.
func transferOwnership(claims []*claim, me *claim, tokens map[string]bool, at time.Time) {
	if slices.ContainsFunc(claims, (*claim).suspended) {
		return
	}
	var holder *claim
	rival := false
	for _, c := range claims {
		if c.owned {
			holder = c
		} else if tokens[c.token] {
			rival = true
		}
	}
	proven := tokens[me.token]
	switch {
	case holder == nil:
		if proven {
			me.gainOwnership()
		}
	case tokens[holder.token] || !rival:
		holder.contestedSince = time.Time{}
	case holder.contestedSince.IsZero():
		holder.contestedSince, holder.nextCheckAt = at, at // so that its account is informed soon
	case holder != me && proven && at.Sub(holder.contestedSince) >= contestPeriod:
		holder.loseOwnership()
		holder.nextCheckAt = at
		me.gainOwnership()
	}
}

func (c *claim) gainOwnership() {
	c.owned = true
	if c.status == StatusFailed {
		c.status = StatusPending
	}
}

// loseOwnership leaves the former owner its stored mail and nothing else.
func (c *claim) loseOwnership() {
	c.owned, c.receives, c.sends, c.aligned = false, false, false, false
	c.contestedSince, c.mismatchSince = time.Time{}, time.Time{}
	c.status = StatusFailed
}

// explainOwnership returns the observation with the text that explains the OWNERSHIP record of a
// claim, when it is known who owns the name.
func explainOwnership(claims []*claim, me *claim, s observation, tokens map[string]bool) observation {
	if tokens == nil {
		return s
	}
	var holder *claim
	for _, c := range claims {
		if c.owned {
			holder = c
		}
	}
	switch {
	case me.owned && tokens[me.token]:
	case me.owned && me.contestedSince.IsZero():
		s.Status = RecordVerified
		s.Error = "The record is gone. You still hold the domain, but put the record back: without it another account that publishes its own takes the domain over."
	case me.owned:
		s.Status = RecordFailed
		s.Error = fmt.Sprintf("Your record is gone, and another account's is there. Put yours back before %s, or that account takes the domain over.",
			me.contestedSince.Add(contestPeriod).Format(timeFormat))
	case tokens[me.token] && holder != nil && tokens[holder.token]:
		s.Status = RecordFailed
		s.Error = "Your record is there, but another account here holds the domain and its record is there too. Remove the other " + ownershipPrefix + "… record; a day later the domain is yours."
	case tokens[me.token] && holder != nil:
		s.Status = RecordFailed
		s.Error = fmt.Sprintf("Your record is there, but another account here held the domain until now. If its record stays away, the domain is yours from %s.",
			holder.contestedSince.Add(contestPeriod).Format(timeFormat))
	}
	return s
}
