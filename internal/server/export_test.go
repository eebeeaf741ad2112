// SPDX-License-Identifier: Apache-2.0

package server

// SendByMX makes a sandbox with a smart host send to the MX hosts instead. Call it before there is
// mail.
func (s *Server) SendByMX() { s.router.SmartHost = nil }
