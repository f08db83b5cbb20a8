import { findServer, view } from '../admin-client.ts'
import type { Run } from '../command.ts'
import { EXIT, Failure, usageError } from '../failure.ts'
import { optionalFlag } from '../options.ts'
import { printResult } from '../print.ts'
import { asRow, asRows } from '../table.ts'
import { waterfall } from '../waterfall.ts'

const DEFAULT_LAST = '5'

export const traces: Run = async (args, io) => {
  const last = Number(optionalFlag(args, 'last') ?? DEFAULT_LAST)
  if (!Number.isInteger(last) || last < 1) throw usageError('--last must be a whole number from 1')
  const answer = asRow(await view(findServer(args, io), '/traces'))
  if (answer.traces === null)
    throw new Failure(EXIT.runtime, 'that server keeps no traces: it is not running with --tracing recent')
  const found = asRows(answer.traces).slice(-last)
  const text = () => found.map(waterfall).join('\n') || 'no request has been traced yet (--tracing.ratio)\n'
  return printResult(args, io, found, text)
}
