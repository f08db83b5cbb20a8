/** Recognises tokens and private keys by their form, in case the contents of a file were given instead of its path. */
export const PRIVATE_KEY = /-----BEGIN [A-Z0-9 ]*PRIVATE KEY-----[\s\S]*?(?:-----END [A-Z0-9 ]*PRIVATE KEY-----|$)/g
const TOKEN = /eyJ[\w-]{4,}\.[\w-]{4,}\.[\w-]*/g
/** The private member of a JWK, even within a JSON string. */
const PRIVATE_MEMBER = /(\\?"d\\?"\s{0,8}:\s{0,8}\\?")[\w-]{16,}/g

export function maskSecrets(text: string): string {
  return text.replaceAll(PRIVATE_KEY, '***').replaceAll(TOKEN, '***').replaceAll(PRIVATE_MEMBER, '$1***')
}
