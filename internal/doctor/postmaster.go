// SPDX-License-Identifier: Apache-2.0

package doctor

import (
	"context"
	"fmt"
	"strings"

	"github.com/mailstead/mailstead/internal/account"
	"github.com/mailstead/mailstead/internal/address"
	"github.com/mailstead/mailstead/internal/domain"
	"github.com/mailstead/mailstead/internal/fault"
	"github.com/mailstead/mailstead/internal/mailbox"
	"github.com/mailstead/mailstead/internal/user"
)

// How many domains CheckPostmaster checks, and how many it shows each.
const (
	maxDomains      = 1000
	maxShownDomains = 20
)

// CheckPostmaster shows where mail to postmaster goes: of the host, and of the hosted domains. Mail
// to abuse takes the same route, unless it has its own mailbox or alias.
func (k *Data) CheckPostmaster(ctx context.Context, r *Report) {
	err := k.checkHostPostmaster(ctx, r)
	if err == nil {
		err = k.checkDomainPostmasters(ctx, r)
	}
	if err != nil {
		r.Fail("Look at the log of the database.", "%v", err)
	}
}

// checkHostPostmaster checks the host's own.
func (k *Data) checkHostPostmaster(ctx context.Context, r *Report) error {
	name := "postmaster@" + k.Host
	to, err := address.Parse(k.Postmaster)
	if err != nil {
		r.Fail("Set --postmaster (MAILSTEAD_POSTMASTER) to the operator's e-mail address.", "%s: nobody", name)
		return nil //nolint:nilerr // it is reported
	}
	holder, hosted, err := domain.FindHosted(ctx, k.Inspector, to.Domain)
	if err != nil {
		return err
	}
	if !hosted {
		r.OK("%s: forwarded to %s", name, to)
		return nil
	}
	route, err := mailbox.AddressRoute(ctx, k.Inspector, holder.Domain, to)
	if err == nil && len(route.Mailboxes) > 0 {
		active, failed := account.IsActive(ctx, k.Inspector, route.Mailboxes[0].Account)
		if failed != nil {
			return failed
		}
		if !active {
			err = fault.New(fault.Denied, "account_suspended", "suspended")
		}
	}
	switch {
	case fault.Is(err, fault.NotFound) || fault.Is(err, fault.Denied):
		r.Warn("Make that mailbox, or set --postmaster to an address that takes mail.",
			"%s: %s is no mailbox here that takes mail; senders are told to try again (450)", name, to)
	case err != nil:
		return err
	default:
		r.OK("%s: %s", name, describeRoute(route))
	}
	return nil
}

// checkDomainPostmasters checks those of the domains.
func (k *Data) checkDomainPostmasters(ctx context.Context, r *Report) error {
	var lines, nobody []string
	boxes, owners := 0, 0
	all, more, err := domain.ListHosted(ctx, k.Inspector, maxDomains)
	if err != nil {
		return err
	}
	for _, d := range all {
		where, err := k.postmasterOf(ctx, d)
		if err != nil {
			return err
		}
		switch {
		case where == "":
			nobody = append(nobody, d.Name)
			continue
		case strings.HasPrefix(where, ownerPrefix):
			owners++
		default:
			boxes++
		}
		lines = append(lines, fmt.Sprintf("postmaster@%s: %s", d.Name, where))
	}
	if len(all) <= maxShownDomains {
		for _, l := range lines {
			r.OK("%s", l)
		}
	} else {
		text := plural(boxes, more, "domain has", "domains have") + " a mailbox or alias for it, " + plural(owners, more, "has its owner", "have their owner")
		r.OK("%s", text)
	}
	if len(nobody) > 0 {
		text := strings.Join(nobody[:min(maxExamples, len(nobody))], ", postmaster@")
		if len(nobody) > maxExamples {
			text += fmt.Sprintf(" and %d more", len(nobody)-maxExamples)
		}
		r.Warn("Make a mailbox in the account, or invite an owner to it: mailstead user link --account …", "postmaster@%s: nobody; the mail is refused (550)", text)
	}
	return nil
}

// ownerPrefix introduces the owner of an account in a finding.
const ownerPrefix = "the account's owner "

// postmasterOf returns where mail to a domain's postmaster goes; "" is nowhere.
func (k *Data) postmasterOf(ctx context.Context, d domain.HostedDomain) (string, error) {
	route, err := mailbox.PostmasterRoute(ctx, k.Inspector, d.Domain, d.Account, d.Name)
	if err == nil {
		return describeRoute(route), nil
	}
	if !fault.Is(err, fault.NotFound) {
		return "", err
	}
	owners, err := user.OwnerAddresses(ctx, k.Inspector, d.Account)
	if err != nil || len(owners) == 0 {
		return "", err
	}
	return ownerPrefix + owners[0].String(), nil
}

// describeRoute describes where a route leads first.
func describeRoute(r mailbox.Route) string {
	if len(r.Mailboxes) > 0 {
		return "mailbox " + r.Mailboxes[0].Address
	}
	return "forwarded to " + r.Forwards[0].String()
}
