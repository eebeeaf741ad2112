// SPDX-License-Identifier: Apache-2.0

package imapd

import "github.com/mailstead/mailstead/internal/imapd/wire"

// check is a checkpoint (RFC 3501 §6.4.1), of which there is no need here:
// whatever was acknowledged is on disk.
func (s *session) check() (wire.Code, error) { return "", nil }
