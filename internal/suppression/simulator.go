// SPDX-License-Identifier: Apache-2.0

package suppression

import "github.com/mailstead/mailstead/internal/address"

// SimulatorDomain is the domain of addresses that simulate external recipients. No entry of the list
// stops mail to them. A bounce of bounced@ and a complaint of complained@ are listed for inspection.
// suppressed@ behaves as if it were on the list.
const SimulatorDomain = "simulator.test"

// Behaviors of the simulator's addresses.
const (
	BehaviorDelivered  = "delivered"
	BehaviorBounced    = "bounced"
	BehaviorDeferred   = "deferred"
	BehaviorComplained = "complained"
	BehaviorSuppressed = "suppressed"
)

// IsSimulator reports whether an address is one of the simulator's.
func IsSimulator(a address.Address) bool { return a.Domain == SimulatorDomain }

// simulatedReason returns the reason for which a simulator address is listed for inspection; "" for
// none.
func simulatedReason(a address.Address) Reason {
	switch SimulatedBehavior(a) {
	case BehaviorBounced:
		return ReasonBounce
	case BehaviorComplained:
		return ReasonComplaint
	}
	return ""
}

// SimulatedBehavior returns the behavior of a simulator address: its local part without the tag.
// Any other value means that the address doesn't exist.
func SimulatedBehavior(a address.Address) string {
	base, _ := a.SplitTag()
	return address.LocalKey(base.Local)
}
