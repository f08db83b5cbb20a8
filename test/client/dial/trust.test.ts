import { beforeAll, describe, expect, it } from 'vitest'
import { createTrust } from '../../../client/dial/trust.ts'
import { makeSecrets, type Secrets } from '../../support/secrets.ts'

let secrets: Secrets
let other: Secrets

beforeAll(async () => {
  secrets = await makeSecrets()
  other = await makeSecrets()
})

describe('createTrust', () => {
  it('accepts what can be used', () => {
    createTrust({})
    createTrust({ ca: secrets.ca })
    createTrust({ ca: [Buffer.from(secrets.ca), other.ca], caOnly: true, tls: secrets.server })
  })

  it('reports what cannot', () => {
    const { cert, key } = secrets.server
    const complaint = (options: Parameters<typeof createTrust>[0]) => {
      try {
        createTrust(options)
      } catch (error) {
        return String(error)
      }
      return 'none'
    }
    expect(complaint({ ca: 'x' })).toBe('TypeError: ca has no readable certificate (PEM)')
    expect(complaint({ ca: [secrets.ca, 'x'] })).toBe('TypeError: ca has no readable certificate (PEM)')
    const cut = `${secrets.ca}${other.ca.slice(0, -40)}`
    expect(complaint({ ca: cut })).toBe('TypeError: ca has no readable certificate (PEM)')
    expect(complaint({ tls: { cert: 'x', key } })).toBe('TypeError: tls.cert is not a readable certificate (PEM)')
    expect(complaint({ tls: { cert, key: 'x' } })).toBe('TypeError: tls.key is not a readable private key (PEM)')
    expect(complaint({ tls: { cert, key: other.server.key } })).toBe('TypeError: tls.key does not match tls.cert')
  })
})
