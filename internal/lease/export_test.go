// SPDX-License-Identifier: Apache-2.0

package lease

import "context"

// Renew renews the lease, as MaintainLease does after each third of it.
func (n *Node) Renew(ctx context.Context) error { return n.renew(ctx) }
