import { expect, it } from 'vitest'
import { SessionsByNetwork } from '../../../router/upstream/sessions-by-network.ts'

it('a session that was deleted does not come back when it is moved', () => {
  const sessions = new SessionsByNetwork<{ network: string | undefined }>()
  const session = { network: undefined }
  sessions.add(session)
  sessions.move(session, 'a')
  expect([sessions.of('a'), sessions.of(undefined)]).toEqual([[session], []])
  sessions.delete(session)
  sessions.move(session, 'b')
  sessions.move(session, undefined)
  expect(['a', 'b', undefined].map(network => sessions.of(network))).toEqual([[], [], []])
})
