import { setTimeout as pause } from 'node:timers/promises'
import { askForAction, findById, findServer, reportMissingReplicas, view } from '../admin-client.ts'
import type { Arguments } from '../args.ts'
import type { Run } from '../command.ts'
import { EXIT, usageError } from '../failure.ts'
import { hasSwitch, optionalFlag } from '../options.ts'
import { printResult } from '../print.ts'
import { asRow, asRows, type Columns, count, printable, type Row, tableText } from '../table.ts'
import { readTimeS } from '../time.ts'

export const revoke: Run = async (args, io) => {
  const rule = {
    tokenId: optionalFlag(args, 'jti'),
    runtime: optionalFlag(args, 'runtime'),
    issuedBefore: time(args, 'issued-before'),
    until: time(args, 'until'),
  }
  if (rule.until !== undefined && rule.until * 1000 <= Date.now()) {
    throw usageError(`--until ${optionalFlag(args, 'until')} is in the past: the rule would refuse nobody`)
  }
  const { until: _, ...what } = rule
  if (Object.values(what).every(value => value === undefined)) {
    throw usageError('what should be revoked? Give --jti ID, --runtime NAME or --issued-before TIME')
  }
  const future = hasSwitch(args, 'future')
  if (future && rule.issuedBefore !== undefined)
    throw usageError('--future and --issued-before cannot be used together')
  const answer = asRow(await askForAction(findServer(args, io), '/revoke', { ...rule, future }))
  const code = reportMissingReplicas(io, answer)
  printResult(args, io, answer, () => {
    const made = asRow(answer.revocation)
    const done = asRows(answer.replicas)
      .filter(({ problem }) => problem === undefined)
      .map(row => `${describe(row)}\n`)
    return `${done.join('')}${ruleText(made)}; undo it with: sallyport revocations remove ${printable(made.id)}\n`
  })
  const issuedBefore = Number(asRow(answer.revocation).issuedBefore ?? 0)
  // A token tells only the second of its issue. One that is issued after this command must not count as issued before.
  await pause(Math.min(1000, Math.max(0, Math.ceil(issuedBefore) * 1000 - Date.now())))
  if (rule.until === undefined) {
    io.note('the rule never expires: it stays in the list until it is removed, unless you give --until TIME')
  }
  return code
}

export const revocationsList: Run = async (args, io) => {
  const answer = asRow(await view(findServer(args, io), '/revocations'))
  printResult(args, io, answer, () => tableText(asRows(answer.revocations), COLUMNS, 'no revocations'))
  reportMissingReplicas(io, answer)
  return EXIT.ok
}

export const revocationsRemove: Run = async (args, io) => {
  const server = findServer(args, io)
  const rules = asRows(asRow(await view(server, '/revocations')).revocations)
  const rule = findById(rules, args.positionals[0]!, 'revocation')
  const answer = asRow(await askForAction(server, '/revocations/remove', { id: rule.id }))
  const code = reportMissingReplicas(io, answer)
  // The other replicas may have learned of it before they were asked.
  const done = asRows(answer.replicas).filter(({ removed }) => removed === true)
  const describe = ({ replica }: Row) => `removed on replica ${printable(replica)}: ${ruleText(rule)}\n`
  return printResult(args, io, answer, () => done.map(describe).join(''), code)
}

const COLUMNS: Columns = {
  id: row => printable(row.id),
  refuses: row => ruleText(row),
  until: row => (row.until === undefined ? 'no end' : moment(row.until)),
  from: row => [row.from].flat().map(printable).join(', '),
  replicas: row => [row.replicas].flat().map(printable).join(', '),
}

function ruleText({ tokenId, runtime, issuedBefore, unreadable }: Row): string {
  if (unreadable !== undefined) return `all tokens: unreadable rule, ${printable(unreadable)}`
  return [
    tokenId === undefined ? 'tokens' : `the token ${printable(tokenId)}`,
    runtime === undefined ? '' : ` of ${printable(runtime)}`,
    issuedBefore === undefined
      ? tokenId === undefined
        ? ', including later ones'
        : ''
      : ` issued before ${moment(issuedBefore)}`,
  ].join('')
}

function moment(seconds: unknown): string {
  const date = new Date(Number(seconds) * 1000)
  return Number.isNaN(date.getTime()) ? printable(seconds) : date.toISOString()
}

function time(args: Arguments, name: string): number | undefined {
  const text = optionalFlag(args, name)
  return text === undefined ? undefined : readTimeS(`--${name}`, text)
}

function describe({ replica, ended, kept }: Row): string {
  const lasts = kept === true ? 'kept across restarts' : 'NOT kept across restarts (give --auth.revocations.file)'
  return `revoked on replica ${printable(replica)}: ${count(ended) ?? '0'} sessions ended; ${lasts}`
}
