import { act, findServer } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import { EXIT, usageError } from '../failure.ts'
import { hasSwitch, optionalFlag } from '../options.ts'
import { asRow, asRows, count, printable } from '../table.ts'
import { readTimeS } from '../time.ts'

/** `sallyport revoke` */
export const revoke: Run = async (args, io) => {
  const rule = {
    tokenId: optionalFlag(args, 'jti'),
    runtime: optionalFlag(args, 'runtime'),
    issuedBefore: time(args, 'issued-before'),
    until: time(args, 'until'),
  }
  const { until: _, ...what } = rule
  if (Object.values(what).every(value => value === undefined)) {
    throw usageError('what is revoked? give --jti ID, --runtime NAME or --issued-before TIME')
  }
  const answer = await act(findServer(args, io), '/revoke', rule)
  if (hasSwitch(args, 'json')) io.out(`${JSON.stringify(answer, undefined, 2)}\n`)
  else for (const row of asRows(asRow(answer).replicas)) io.out(`${describe(row)}\n`)
  return EXIT.ok
}

function time(args: Arguments, name: string): number | undefined {
  const text = optionalFlag(args, name)
  return text === undefined ? undefined : readTimeS(`--${name}`, text)
}

function describe({ replica, ended, kept }: ReturnType<typeof asRow>): string {
  const lasts = kept === true ? 'kept over a restart' : 'NOT kept over a restart (give --auth.revocations.file)'
  return `revoked on replica ${printable(replica)}: ${count(ended) ?? '0'} sessions ended; ${lasts}`
}
