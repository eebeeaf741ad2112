// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// check handles CHECK (RFC 3501 §6.4.1). It does nothing, since everything acknowledged is on disk.
func (s *session) check() (wire.Code, error) { return "", nil }
