/** Tokens and private keys, known by their form: what stands in a file, and was written in the place of its path. */
export const PRIVATE_KEY = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)/g
const TOKEN = /eyJ[\w-]{4,}\.[\w-]{4,}\.[\w-]*/g
/** Of a JWK, also as a JSON string in JSON. */
const PRIVATE_MEMBER = /(\\?"d\\?"\s{0,8}:\s{0,8}\\?")[\w-]{16,}/g

export function withoutHeld(text: string): string {
  return text.replaceAll(PRIVATE_KEY, '***').replaceAll(TOKEN, '***').replaceAll(PRIVATE_MEMBER, '$1***')
}
