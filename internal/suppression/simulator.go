// SPDX-License-Identifier: Apache-2.0

package suppression

import "github.com/mailstead/mailstead/internal/address"

// SimulatorDomain is where the addresses are that behave like the outside on
// demand. They are never on the list: suppressed@ behaves as if it were, and a
// bounce of bounced@ is listed for inspection alone.
const SimulatorDomain = "simulator.test"

// What the simulator's addresses play.
const (
	BehaviorDelivered  = "delivered"
	BehaviorBounced    = "bounced"
	BehaviorDeferred   = "deferred"
	BehaviorComplained = "complained"
	BehaviorSuppressed = "suppressed"
)

// IsSimulator reports whether an address is one of the simulator's.
func IsSimulator(a address.Address) bool { return a.Domain == SimulatorDomain }

// SimulatedBehavior is what a simulator address plays: its local part without a label,
// which is none of the above where nobody is at home.
func SimulatedBehavior(a address.Address) string {
	base, _ := a.SplitTag()
	return address.LocalKey(base.Local)
}
