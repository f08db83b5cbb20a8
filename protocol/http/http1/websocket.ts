/** The part of the WebSocket handshake that each hop does itself (RFC 6455 section 4). */
import { createHash, randomBytes } from 'node:crypto'

const GUID = '258EAFA5-E914-47DA-95CA-C5AB0DC85B11'
/** Base64 of exactly 16 bytes. The last character before the padding carries two bits. */
const KEY = /^[A-Za-z0-9+/]{21}[AQgw]==$/

export function isWebSocketKey(key: string | undefined): key is string {
  return key !== undefined && KEY.test(key)
}

export function newWebSocketKey(): string {
  return randomBytes(16).toString('base64')
}

/** `Sec-WebSocket-Accept` for a key. */
export function webSocketAccept(key: string): string {
  return createHash('sha1').update(key).update(GUID).digest('base64')
}
