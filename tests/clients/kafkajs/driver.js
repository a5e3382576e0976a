// kafkajs behind the vocabulary of drivers, which ../driver.py tells.
'use strict'

const readline = require('node:readline')
const { Kafka, CompressionTypes, CompressionCodecs, ConfigResourceTypes, AssignerProtocol, logLevel } = require('kafkajs')
const snappy = require('kafkajs-snappy')
const lz4 = require('lz4js')
const zstd = require('@bokuweb/zstd-wasm')

const zstdReady = zstd.init()
CompressionCodecs[CompressionTypes.Snappy] = snappy
CompressionCodecs[CompressionTypes.LZ4] = () => ({
  compress: async encoder => Buffer.from(lz4.compress(encoder.buffer)),
  decompress: async buffer => Buffer.from(lz4.decompress(buffer)),
})
CompressionCodecs[CompressionTypes.ZSTD] = () => ({
  compress: async encoder => zstdReady.then(() => Buffer.from(zstd.compress(encoder.buffer))),
  decompress: async buffer => zstdReady.then(() => Buffer.from(zstd.decompress(buffer))),
})

const COMPRESSIONS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
}
const RESOURCES = { topic: ConfigResourceTypes.TOPIC, broker: ConfigResourceTypes.BROKER }
// A client in a test comes back at once, and does not give up within the test's own deadline.
const RETRY = { initialRetryTime: 20, maxRetryTime: 200, retries: 100 }
const METADATA_MAX_AGE_MS = 300

const producers = new Map()
const consumers = new Map()
const admins = new Map()

const tell = event => process.stdout.write(JSON.stringify(event) + '\n')
const encoded = value => (value === null || value === undefined ? null : Buffer.from(value).toString('base64'))
const decoded = value => (value === null ? null : Buffer.from(value, 'base64'))

function kafka(bootstrap, clientId = 'driver') {
  return new Kafka({
    clientId,
    brokers: bootstrap.split(','),
    retry: RETRY,
    logLevel: logLevel.INFO,
    logCreator: () => entry => process.stderr.write(JSON.stringify({ ...entry.log, level: entry.label }) + '\n'),
  })
}

async function openProducer({ producer, bootstrap, compression = 'none', acks = 'all', idempotent = false,
  transactional_id: transactionalId, batch_records: batchRecords, transaction_timeout_ms: transactionTimeout = 60000 }) {
  const opened = kafka(bootstrap).producer({
    idempotent: idempotent || Boolean(transactionalId),
    transactionalId,
    transactionTimeout,
    maxInFlightRequests: idempotent ? 1 : undefined,
    metadataMaxAge: METADATA_MAX_AGE_MS,
    retry: RETRY,
  })
  await opened.connect()
  const state = { opened, compression, batchRecords, acks: acks === 'all' ? -1 : Number(acks) }
  producers.set(producer, state)
  // Only with its first transaction does it ask for a producer id, and so fence the one before.
  if (transactionalId) state.transaction = await opened.transaction()
}

async function send({ producer, topic, records }) {
  const { opened, transaction, compression, batchRecords, acks } = producers.get(producer)
  const size = batchRecords || Math.max(records.length, 1)
  const places = []
  for (let start = 0; start < records.length; start += size) {
    const batch = records.slice(start, start + size)
    const messages = batch.map(({ key, value, headers, timestamp, partition }) => ({
      key: decoded(key),
      value: decoded(value),
      headers: Object.fromEntries(headers.map(([name, header]) => [name, decoded(header)])),
      timestamp: timestamp === null ? undefined : String(timestamp),
      partition: partition === null ? undefined : partition,
    }))
    const answers = (await (transaction || opened).send({ topic, acks, compression: COMPRESSIONS[compression], messages })) || []
    // One answer for each partition; which of the records went where is known only where we said so.
    const next = new Map(answers.map(answer => [answer.partition, Number(answer.baseOffset)]))
    for (const { partition } of batch) {
      const offset = next.get(partition)
      places.push([partition, offset === undefined ? null : offset])
      next.set(partition, offset + 1)
    }
  }
  return places
}

async function beginTransaction({ producer }) {
  const state = producers.get(producer)
  if (!state.transaction) state.transaction = await state.opened.transaction()
}

async function sendOffsets({ producer, group, offsets }) {
  const topics = offsets.map(([topic, partition, offset]) => ({ topic, partitions: [{ partition, offset: String(offset) }] }))
  await producers.get(producer).transaction.sendOffsets({ consumerGroupId: group, topics })
}

async function endTransaction({ producer, commit }) {
  const state = producers.get(producer)
  await (commit ? state.transaction.commit() : state.transaction.abort())
  state.transaction = null
}

async function closeProducer({ producer }) {
  const { opened } = producers.get(producer)
  producers.delete(producer)
  await opened.disconnect()
}

async function openConsumer({ consumer, bootstrap, group, topics, assign, reset = 'earliest',
  session_timeout_ms: sessionTimeout = 10000, isolation = 'read_uncommitted' }) {
  const client = kafka(bootstrap, consumer)
  const opened = client.consumer({
    groupId: group || `reader-${consumer}`,
    sessionTimeout,
    heartbeatInterval: 200,
    rebalanceTimeout: 10000,
    metadataMaxAge: METADATA_MAX_AGE_MS,
    maxWaitTimeInMs: 100,
    readUncommitted: isolation === 'read_uncommitted',
    retry: RETRY,
  })
  const state = { opened, positions: new Map(), assigned: [], isPositioned: !assign }
  consumers.set(consumer, state)
  opened.on(opened.events.GROUP_JOIN, ({ payload }) => {
    const owned = Object.entries(payload.memberAssignment).flatMap(([topic, indexes]) => indexes.map(i => [topic, i]))
    tell({ consumer, revoked: state.assigned, assigned: owned })
    state.assigned = owned
  })
  opened.on(opened.events.CRASH, ({ payload }) => {
    if (!payload.restart) tell({ consumer, failed: String(payload.error) })
  })
  await opened.connect()
  const wanted = assign ? [assign.topic] : topics
  await opened.subscribe({ topics: wanted, fromBeginning: reset === 'earliest' })
  await opened.run({ autoCommit: false, eachBatch: async told => hear(consumer, state, assign, told) })
  if (assign) {
    const offset = await startOffset(bootstrap, assign)
    opened.seek({ topic: assign.topic, partition: assign.partition, offset })
    state.isPositioned = true
  }
}

async function hear(consumer, state, assign, { batch, isRunning, isStale }) {
  if (!isRunning() || isStale() || !state.isPositioned) return
  if (assign && batch.partition !== assign.partition) return
  const records = batch.messages.map(message => [
    batch.topic,
    batch.partition,
    Number(message.offset),
    Number(message.timestamp),
    encoded(message.key),
    encoded(message.value),
    Object.entries(message.headers || {}).map(([name, value]) => [name, encoded(value)]),
  ])
  state.positions.set(`${batch.topic} ${batch.partition}`, {
    topic: batch.topic,
    partition: batch.partition,
    offset: String(BigInt(batch.lastOffset()) + 1n),
  })
  tell({ consumer, records })
}

async function startOffset(bootstrap, { topic, partition, start }) {
  const admin = await adminAt(bootstrap)
  if (typeof start === 'number') return String(start)
  const found = start.time === undefined
    ? await admin.fetchTopicOffsets(topic)
    : await admin.fetchTopicOffsetsByTimestamp(topic, start.time)
  const place = found.find(each => each.partition === partition)
  return { beginning: place.low, end: place.high }[start] || place.offset
}

async function commit({ consumer }) {
  const { opened, positions } = consumers.get(consumer)
  await opened.commitOffsets([...positions.values()])
}

async function closeConsumer({ consumer }) {
  const { opened } = consumers.get(consumer)
  consumers.delete(consumer)
  await opened.disconnect()
}

async function closeAll() {
  await Promise.all([...consumers.keys()].map(consumer => closeConsumer({ consumer })))
  await Promise.all([...producers.keys()].map(producer => closeProducer({ producer })))
  await Promise.all([...admins.values()].map(admin => admin.disconnect()))
  admins.clear()
}

async function adminAt(bootstrap) {
  if (!admins.has(bootstrap)) {
    const admin = kafka(bootstrap).admin({ retry: { ...RETRY, retries: 5 } })
    await admin.connect()
    admins.set(bootstrap, admin)
  }
  return admins.get(bootstrap)
}

const administration = {
  async create_topic(admin, { topic, partitions, configs }) {
    const configEntries = Object.entries(configs).map(([name, value]) => ({ name, value }))
    const wanted = { topic, numPartitions: partitions, replicationFactor: 1, configEntries }
    if (!(await admin.createTopics({ topics: [wanted] }))) throw new Error(`${topic} already exists`)
  },
  delete_topic: (admin, { topic }) => admin.deleteTopics({ topics: [topic] }),
  create_partitions: (admin, { topic, count }) => admin.createPartitions({ topicPartitions: [{ topic, count }] }),
  list_topics: admin => admin.listTopics(),
  async describe_topic(admin, { topic }) {
    const { topics } = await admin.fetchTopicMetadata({ topics: [topic] })
    return { partitions: topics[0].partitions.length }
  },
  async describe_config(admin, { kind, name }) {
    const { resources } = await admin.describeConfigs({ resources: [{ type: RESOURCES[kind], name }] })
    return Object.fromEntries(resources[0].configEntries.map(entry => [entry.configName, entry.configValue]))
  },
  async replace_config(admin, { kind, name, configs }) {
    const configEntries = Object.entries(configs).map(([key, value]) => ({ name: key, value }))
    await admin.alterConfigs({ resources: [{ type: RESOURCES[kind], name, configEntries }] })
  },
  async list_groups(admin) {
    return (await admin.listGroups()).groups.map(group => group.groupId)
  },
  async describe_group(admin, { group }) {
    const { groups } = await admin.describeGroups([group])
    const members = groups[0].members.map(member => {
      const { assignment } = AssignerProtocol.MemberAssignment.decode(member.memberAssignment)
      const partitions = Object.entries(assignment).flatMap(([topic, indexes]) => indexes.map(i => [topic, i]))
      return { client_id: member.clientId, partitions }
    })
    return { state: groups[0].state, members }
  },
  delete_group: (admin, { group }) => admin.deleteGroups([group]),
  async group_offsets(admin, { group }) {
    const offsets = await admin.fetchOffsets({ groupId: group })
    return offsets.flatMap(({ topic, partitions }) =>
      partitions.filter(each => each.offset !== '-1').map(each => [topic, each.partition, Number(each.offset)]))
  },
  async alter_offsets(admin, { group, offsets }) {
    for (const [topic, partition, offset] of offsets) {
      await admin.setOffsets({ groupId: group, topic, partitions: [{ partition, offset: String(offset) }] })
    }
  },
  async list_offset(admin, { topic, partition, at }) {
    const found = at.time === undefined
      ? await admin.fetchTopicOffsets(topic)
      : await admin.fetchTopicOffsetsByTimestamp(topic, at.time)
    const place = found.find(each => each.partition === partition)
    return Number({ earliest: place.low, latest: place.high }[at] || place.offset)
  },
  async delete_records(admin, { topic, partition, before }) {
    await admin.fetchTopicOffsets(topic) // deleteTopicRecords takes it that somebody has asked where the leaders are
    await admin.deleteTopicRecords({ topic, partitions: [{ partition, offset: String(before) }] })
    return null
  },
  async describe_cluster(admin) {
    const { clusterId, controller, brokers } = await admin.describeCluster()
    return { cluster_id: clusterId, controller, brokers: brokers.map(each => [each.nodeId, each.host, each.port]) }
  },
}

const commands = {
  open_producer: openProducer,
  send,
  begin_transaction: beginTransaction,
  send_offsets: sendOffsets,
  end_transaction: endTransaction,
  close_producer: closeProducer,
  open_consumer: openConsumer,
  commit,
  close_consumer: closeConsumer,
  close_all: closeAll,
}
for (const [name, administer] of Object.entries(administration)) {
  commands[name] = async arguments_ => administer(await adminAt(arguments_.bootstrap), arguments_)
}

async function obey(command) {
  try {
    const result = await commands[command.do](command.with)
    tell({ id: command.id, result: result === undefined ? null : result })
  } catch (error) {
    const causes = [...(error.errors || []), ...(error.groups || [])].map(cause => JSON.stringify(cause))
    tell({ id: command.id, error: [error.name, error.type, error.message, ...causes].join(': ') })
  }
}

readline.createInterface({ input: process.stdin }).on('line', line => obey(JSON.parse(line))).on('close', () => process.exit(0))
