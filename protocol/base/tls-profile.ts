/** TLS settings: two levels of Mozilla's server-side guidelines, version 5.0. */
import { constants } from 'node:crypto'
import type { SecureContextOptions } from 'node:tls'
import { demand } from './limit.ts'

/** Throws a TypeError for a version that is unknown, or older than these. */
export function checkTlsMin(name: string, version: string | undefined): void {
  const isKnown = version === undefined || version === 'TLSv1.2' || version === 'TLSv1.3'
  demand(isKnown, `${name} must be TLSv1.2 or TLSv1.3`)
}

type TlsProfile = Required<
  Pick<SecureContextOptions, 'minVersion' | 'ciphers' | 'ecdhCurve' | 'honorCipherOrder' | 'secureOptions'>
>

/** Callers choose the suite, since all are good. Peers may not renegotiate (TLS 1.2, CVE-2011-1473). */
const SHARED = { honorCipherOrder: false, secureOptions: constants.SSL_OP_NO_RENEGOTIATION } as const

/**
 * For servers that request client certificates. Sessions are not resumed there, because OpenSSL would not check the certificate
 * again, and would admit one that has expired since.
 */
export const ASKING = { requestCert: true, secureOptions: SHARED.secureOptions | constants.SSL_OP_NO_TICKET } as const

const SUITES = ['TLS_AES_128_GCM_SHA256', 'TLS_AES_256_GCM_SHA384', 'TLS_CHACHA20_POLY1305_SHA256']

/** The hybrid group is newer than the guidelines. Its post-quantum half only adds to X25519. OpenSSL has it since 3.5. */
const [major = 0, minor = 0] = process.versions.openssl.split('.').map(Number)
const HYBRID = major > 3 || (major === 3 && minor >= 5) ? ['X25519MLKEM768'] : []
const GROUPS = [...HYBRID, 'X25519', 'prime256v1', 'secp384r1'].join(':')

/** For modern clients: only TLS 1.3. */
export const MODERN: TlsProfile = { ...SHARED, minVersion: 'TLSv1.3', ciphers: SUITES.join(':'), ecdhCurve: GROUPS }

/** For callers of all kinds: TLS 1.3, and 1.2 with forward secrecy and AEAD. */
export const INTERMEDIATE: TlsProfile = {
  ...SHARED,
  minVersion: 'TLSv1.2',
  ciphers: [
    ...SUITES,
    'ECDHE-ECDSA-AES128-GCM-SHA256',
    'ECDHE-RSA-AES128-GCM-SHA256',
    'ECDHE-ECDSA-AES256-GCM-SHA384',
    'ECDHE-RSA-AES256-GCM-SHA384',
    'ECDHE-ECDSA-CHACHA20-POLY1305',
    'ECDHE-RSA-CHACHA20-POLY1305',
  ].join(':'),
  ecdhCurve: GROUPS,
}
