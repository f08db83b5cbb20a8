/** Lookup tables for the bytes that a head may contain (RFC 9110 section 5.6, RFC 9112 section 3). */
import { Buffer } from 'node:buffer'

export const CR = 0x0d
export const LF = 0x0a
export const SP = 0x20
export const HT = 0x09
export const COLON = 0x3a

/** The byte in lower case if a token may contain it, else 0. */
export const TOKEN_LOWER = new Uint8Array(256)
/** Like {@link TOKEN_LOWER}, but 0 for upper case. */
export const LOWER = new Uint8Array(256)
/** 1 if a field value may contain the byte: tab, space, visible ASCII, obs-text. */
export const VALUE = new Uint8Array(256)
/** 1 if a request target may contain the byte: visible ASCII without `#`. */
export const TARGET = new Uint8Array(256)
/** The value of a hexadecimal digit, or 255 for any other byte. */
export const HEX = new Uint8Array(256).fill(255)

for (const char of "!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz")
  TOKEN_LOWER[char.charCodeAt(0)] = char.charCodeAt(0)
LOWER.set(TOKEN_LOWER)
for (let byte = 0x41; byte <= 0x5a; byte++) TOKEN_LOWER[byte] = byte + 0x20
for (let byte = 0x20; byte < 0x100; byte++) VALUE[byte] = byte === 0x7f ? 0 : 1
VALUE[HT] = 1
for (let byte = 0x21; byte < 0x7f; byte++) TARGET[byte] = byte === 0x23 ? 0 : 1
for (let digit = 0; digit < 10; digit++) HEX[0x30 + digit] = digit
for (let digit = 10; digit < 16; digit++) {
  HEX[0x41 + digit - 10] = digit
  HEX[0x61 + digit - 10] = digit
}

export const HEAD_END = Buffer.from('\r\n\r\n')
