// SPDX-License-Identifier: Apache-2.0

package suppression

import "github.com/mailstead/mailstead/internal/address"

// SimulatorDomain is where the addresses are that behave like the outside on
// demand. They are never on the list: suppressed@ behaves as if it were, and a
// bounce of bounced@ is listed for inspection alone.
const SimulatorDomain = "simulator.test"

const (
	simulatedSuppressed = "suppressed"
	simulatedBounced    = "bounced"
)

// Simulator reports whether an address is one of the simulator's.
func Simulator(a address.Address) bool { return a.Domain == SimulatorDomain }

// simulated is what a simulator address plays, without its label.
func simulated(a address.Address) string {
	base, _ := a.Base()
	return address.LocalKey(base.Local)
}
