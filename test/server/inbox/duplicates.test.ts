// @module-tag slow
/** Which webhooks are duplicates: what a sender sends again, and not what somebody else has signed. */
import { Buffer } from 'node:buffer'
import { afterAll, afterEach, beforeAll, describe, expect, test } from 'vitest'
import { SCHEMES, type SchemeName, schemeOf, type WebhookScheme } from '../../../protocol/webhook/scheme.ts'
import { readSecret } from '../../../protocol/webhook/secret.ts'
import { createSigner } from '../../../protocol/webhook/sign.ts'
import type { InboxRule } from '../../../protocol/wire/control.ts'
import { needs } from '../../support/needs.ts'
import { Postgres } from '../../support/postgres.ts'
import { leave } from '../fixture.ts'
import { type Ground, makeGround, RULE } from './fixture.ts'

/** All schemes, each with two secrets. */
const NAMES = Object.keys(SCHEMES) as SchemeName[]
const SECRETS = ['ours', 'theirs'] as const
type Sender = (typeof SECRETS)[number]
const fileOf = (scheme: SchemeName, whose: Sender) =>
  Buffer.from(schemeOf(scheme).encodedSecret === true ? `whsec_${Buffer.from(whose).toString('base64')}` : whose)

const optionsOf = (scheme: SchemeName): WebhookScheme => (scheme === 'hmac' ? { scheme, header: 'X-Sig' } : { scheme })

/** The fields with which a sender signs, that many seconds ago. */
function signed(scheme: SchemeName, whose: Sender, secondsAgo = 0): Record<string, string> {
  const options = optionsOf(scheme)
  const signing = { id: 'd-1', timestamp: Math.floor(Date.now() / 1000) - secondsAgo }
  const fields = createSigner(options, readSecret(options, fileOf(scheme, whose))).sign([Buffer.from('{}')], signing)
  return Object.fromEntries(fields.flatMap((name, i) => (i % 2 === 0 ? [[name, fields[i + 1]!]] : [])))
}

const ruleOf = (scheme: SchemeName): InboxRule => ({
  ...{ ...RULE, timestamps: true },
  ...(scheme === 'hmac' && { signature: 'x-sig' }),
})
const verifyOf = (scheme: SchemeName) => ({
  ...optionsOf(scheme),
  secrets: SECRETS.map(whose => fileOf(scheme, whose).toString('base64')),
})

describe.each(['sqlite', 'postgres'] as const)('%s', name => {
  const run = name === 'sqlite' || needs('postgres')
  let postgres: Postgres | undefined
  let ground: Ground

  beforeAll(async () => {
    if (name === 'postgres' && run) postgres = await Postgres.start()
  })
  afterAll(() => postgres?.stop())
  afterEach(async () => {
    await ground.close()
    await postgres?.clear()
  })

  /** The route of a runtime whose webhooks wait. */
  const paused = async (rule: InboxRule) => {
    ground = await makeGround(postgres && { url: postgres.url })
    const client = await ground.connect([rule])
    await ground.server.inbox!.pause('demo', true)
    return client
  }
  const statusOf = async (headers: Record<string, string>) =>
    JSON.parse((await ground.post('{}', { headers: { 'idempotency-key': '1', ...headers } })).text).status

  test.runIf(run).each(NAMES)(
    'I5: %s: nobody has verified it, so one that is signed otherwise is another one',
    async scheme => {
      await paused(ruleOf(scheme))
      const first = signed(scheme, 'ours')
      expect(await statusOf(first)).toBe('stored')
      expect(await statusOf(first)).toBe('duplicate')
      expect(await statusOf(signed(scheme, 'theirs'))).toBe('stored')
      expect(await statusOf(signed(scheme, 'ours', 9))).toBe(schemeOf(scheme).timestamped ? 'stored' : 'duplicate')
    },
  )

  test.runIf(run).each(NAMES)(
    'I5: %s: the edge has verified it, so what its sender sends again is a duplicate',
    async scheme => {
      const timed = schemeOf(scheme).timestamped
      const client = await paused(ruleOf(scheme))
      expect(await statusOf(signed(scheme, 'ours'))).toBe('stored')
      await leave(ground.server, client)
      await ground.connect([{ ...ruleOf(scheme), verify: verifyOf(scheme) }])
      expect(await statusOf(signed(scheme, 'ours'))).toBe(timed ? 'stored' : 'duplicate')
      expect(await statusOf(signed(scheme, 'ours', 9))).toBe('duplicate')
      expect(await statusOf(signed(scheme, 'theirs'))).toBe(timed ? 'duplicate' : 'stored')
    },
  )

  test.runIf(run)('I5: hmac: a client of an earlier version names the field for the edge alone', async () => {
    const { signature: _, ...rule } = ruleOf('hmac')
    await paused({ ...rule, verify: verifyOf('hmac') })
    const told: string[] = []
    for (const whose of ['ours', 'ours', 'theirs'] as const) told.push(await statusOf(signed('hmac', whose)))
    expect(told).toEqual(['stored', 'duplicate', 'stored'])
  })

  test.runIf(run).each(NAMES.flatMap(scheme => [[scheme, 'none'] as const, [scheme, 'its id'] as const]))(
    'I5: %s: one that the edge has verified is no duplicate of one that has %s of its fields, and that nobody has verified',
    async (scheme, which) => {
      const client = await paused(ruleOf(scheme))
      const id = signed(scheme, 'ours')['webhook-id']
      expect(await statusOf(which === 'its id' && id !== undefined ? { 'webhook-id': id } : {})).toBe('stored')
      await leave(ground.server, client)
      await ground.connect([{ ...ruleOf(scheme), verify: verifyOf(scheme) }])
      expect(await statusOf(signed(scheme, 'ours'))).toBe('stored')
      expect(await statusOf(signed(scheme, 'ours', 9))).toBe('duplicate')
    },
  )

  test.runIf(run).each([
    ['x-github-delivery', 'x-hub-signature-256'],
    ['x-forgejo-delivery', 'x-forgejo-signature'],
    ['x-gitea-delivery', 'x-gitea-signature'],
    ['idempotency-key', 'x-gitlab-token'],
    ['x-request-uuid', 'x-hub-signature'],
    ['webhook-id', 'webhook-signature'],
    ['svix-id', 'svix-signature'],
  ])('%s: one that is sent again after a change of the secret is another one', async (id, signature) => {
    await paused(ruleOf('hmac'))
    const told: string[] = []
    for (const value of ['wrong', 'wrong', 'right']) told.push(await statusOf({ [id]: '1', [signature]: value }))
    expect(told).toEqual(['stored', 'duplicate', 'stored'])
  })
})
